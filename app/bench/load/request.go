package load

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// body is a message as Slack sends it, of some 1.5 kB. The marks of number and channel are
// replaced by what is as long.
const body = `{"token":"unused-verification-token","team_id":"%ACCOUNT%","context_team_id":"%ACCOUNT%","context_enterprise_id":null,` +
	`"api_app_id":"A0BENCH7Q2X","event":{"user":"U0FINCH8R2L","type":"message","ts":"17########.######",` +
	`"client_msg_id":"7a7ee785-8e86-5ce4-9cca-6a##########","text":"` + text + `","team":"%ACCOUNT%",` +
	`"blocks":[{"type":"rich_text","block_id":"b4529","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"` + text + `"}]}]}],` +
	`"channel":"C00@@@@@@@@","event_ts":"17########.######","channel_type":"channel"},` +
	`"type":"event_callback","event_id":"Ev##########","event_time":1790000000,` +
	`"authorizations":[{"enterprise_id":null,"team_id":"%ACCOUNT%","user_id":"U0LARKB0T55","is_bot":true,"is_enterprise_install":false}],` +
	`"is_ext_shared_channel":false,"event_context":"4-invented-0tide4k7q2"}`

const text = "The tide table for pier nine is wrong again: it says low water at half past three, and at half past three " +
	"the lower steps were under water to the fourth. Could somebody who has the new tables look at it before the ferry " +
	"from the islands is due, and tell the harbour office what the right times are? Last week they were wrong as well."

const requestLine = "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Slackbot 1.0 (+https://api.slack.com/robots)\r\nAccept: */*\r\n" +
	"Content-Type: application/json\r\nX-Slack-Request-Timestamp: %s\r\nX-Slack-Signature: v0=%064d\r\nContent-Length: %d\r\n\r\n"

// Requests returns the requests of j as they go over the wire, signed at that time.
func Requests(j Job, at time.Time) [][]byte {
	text := strings.ReplaceAll(body, "%ACCOUNT%", j.Account)
	timestamp := strconv.FormatInt(at.Unix(), 10)
	request := fmt.Sprintf(requestLine, j.Path, j.Addr, timestamp, 0, len(text)) + text
	bodyAt := len(request) - len(text)
	signatureAt := strings.Index(request, "v0=") + len("v0=")
	// longest first: a mark holds the shorter ones
	timesAt := places(request, "17########.######")
	numbersAt := places(request, "##########")
	channelAt := strings.Index(request, "@@@@@@@@")

	mac := hmac.New(sha256.New, []byte(j.Secret))
	head := []byte("v0:" + timestamp + ":")
	var sum [sha256.Size]byte
	all := make([]byte, 0, j.Events*len(request))
	requests := make([][]byte, j.Events)
	for i := range requests {
		begin := len(all)
		all = append(all, request...)
		r := all[begin:len(all):len(all)]
		n := j.First + i
		for _, at := range timesAt {
			digits(r[at+2:at+10], 90_000_000+n/1_000_000)
			digits(r[at+11:at+17], n%1_000_000)
		}
		for _, at := range numbersAt {
			digits(r[at:at+10], n)
		}
		digits(r[channelAt:channelAt+8], n%max(j.Conversations, 1))
		mac.Reset()
		mac.Write(head)
		mac.Write(r[bodyAt:])
		hex.Encode(r[signatureAt:], mac.Sum(sum[:0]))
		requests[i] = r
	}
	return requests
}

// places returns where mark stands in s.
func places(s, mark string) (at []int) {
	for from := 0; ; {
		i := strings.Index(s[from:], mark)
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + len(mark)
	}
}

// digits writes n right-aligned over the whole of b.
func digits(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}
