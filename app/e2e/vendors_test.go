package e2e_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/admitone/admitone/app"
	"github.com/admitone/admitone/channels"
)

// An answer is what a vendor got for a delivery. status is 0 if there was none.
type answer struct {
	status  int
	verdict string
	header  http.Header
	body    string
	took    time.Duration
}

func (a answer) String() string { return fmt.Sprintf("%d %s %q", a.status, a.verdict, a.body) }

// deliver sends a vendor's request.
func deliver(r *http.Request) answer {
	start := time.Now()
	res, err := client.Do(r)
	if err != nil {
		return answer{body: err.Error(), took: time.Since(start)}
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{body: err.Error(), took: time.Since(start)}
	}
	return answer{res.StatusCode, res.Header.Get("Admitone-Verdict"), res.Header, string(b), time.Since(start)}
}

// want fails the test unless the answer has the status and the verdict.
func (a answer) want(t testing.TB, status int, verdict string) {
	t.Helper()
	if a.status != status || a.verdict != verdict {
		t.Errorf("answer %v; want %d %s", a, status, verdict)
	}
}

// A message is one that a customer writes, for whatever vendor.
type message struct {
	to    installation
	id    string // of the event, and of the message in it
	from  string // the conversation
	text  string
	retry int
}

// request returns the genuine request with which the vendor delivers m to an instance.
func (m message) request(t testing.TB, in *instance) *http.Request {
	t.Helper()
	all := app.Channels()
	c := all[slices.IndexFunc(all, func(c channels.Channel) bool { return c.Name == m.to.channel })]
	from := m.from
	if from == "" {
		from = "15550142"
	}
	r, err := c.Simulate(m.to.credentials(), channels.Simulation{
		URL: in.public + "/in/" + m.to.channel + "/" + m.to.id, PublicURL: publicURL, Account: m.to.account,
		EventID: m.id, Message: m.id, From: from, Text: m.text, Retry: m.retry, Now: time.Now(),
	})
	if err != nil {
		t.Fatalf("simulate %s: %v", m.to.channel, err)
	}
	return r
}

// send delivers m to an instance.
func (m message) send(t testing.TB, in *instance) answer {
	t.Helper()
	return deliver(m.request(t, in))
}

// again returns m as the vendor sends it the n-th time after the first.
func (m message) again(n int) message {
	m.retry = n
	return m
}

// write returns a new message of a customer to an installation, in a conversation of its own.
func (d *deployment) write(to installation) message {
	text := d.text()
	d.mu.Lock()
	defer d.mu.Unlock()
	n := strconv.Itoa(1000 + d.number)
	return message{to: to, id: n, from: "1555" + n, text: text}
}

// in returns m in the conversation of another customer.
func (m message) in(conversation string) message {
	m.from = conversation
	return m
}

// storm sends n requests at the same moment.
func storm(n int, request func(i int) *http.Request) []answer {
	requests := make([]*http.Request, n)
	for i := range requests {
		requests[i] = request(i)
	}
	answers := make([]answer, n)
	gate := make(chan struct{})
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			<-gate
			answers[i] = deliver(requests[i])
		})
	}
	close(gate)
	all.Wait()
	return answers
}

func post(t testing.TB, address string, body []byte) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		t.Fatalf("request: %v", err)
	}
	return r
}

// signSlack returns a request of Slack with that body. path follows /in/slack.
func signSlack(t testing.TB, in *instance, path, secret string, body []byte) *http.Request {
	t.Helper()
	r := post(t, in.public+"/in/slack"+path, body)
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + now + ":"))
	mac.Write(body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Slack-Request-Timestamp", now)
	r.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
	return r
}

// slackEvent returns the body in which Slack delivers an event of an account.
func slackEvent(t testing.TB, account, id string, event settings) []byte {
	t.Helper()
	return slackEventOf(t, "A0APP", account, id, event)
}

func slackEventOf(t testing.TB, app, account, id string, event settings) []byte {
	t.Helper()
	body, err := json.Marshal(settings{
		"type": "event_callback", "api_app_id": app, "team_id": account, "event_id": id, "event": event,
		"authorizations": []settings{{"team_id": account, "user_id": "U0BOT", "is_bot": true, "is_enterprise_install": false}},
	})
	if err != nil {
		t.Fatalf("Slack event: %v", err)
	}
	return body
}

// slackMessage is a message in a channel, as an event of Slack's.
func slackMessage(channel, ts, text string) settings {
	return settings{"type": "message", "channel": channel, "channel_type": "channel", "user": "U0WRITER", "text": text, "ts": ts, "event_ts": ts}
}

// signTwilio returns a request of Twilio's with that form. path follows /in/twilio/acme-twilio.
func signTwilio(t testing.TB, in *instance, path string, form url.Values) *http.Request {
	t.Helper()
	path = "/in/twilio/acme-twilio" + path
	r := post(t, in.public+path, []byte(form.Encode()))
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	mac := hmac.New(sha1.New, []byte(install("acme-twilio").value))
	mac.Write([]byte(publicURL + path))
	for _, name := range names {
		for _, value := range form[name] {
			mac.Write([]byte(name + value))
		}
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	r.Header.Set("X-Twilio-Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return r
}

func twilioMessage(sid, text string) url.Values {
	return url.Values{
		"MessageSid": {sid}, "AccountSid": {install("acme-twilio").account}, "From": {"+14155550142"}, "To": {"+14155550101"},
		"Body": {text}, "NumMedia": {"0"}, "SmsStatus": {"received"},
	}
}

// signTelegram returns a request of Telegram's to a bot.
func signTelegram(t testing.TB, in *instance, bot installation, body []byte) *http.Request {
	t.Helper()
	r := post(t, in.public+"/in/telegram/"+bot.id, body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Telegram-Bot-Api-Secret-Token", bot.value)
	return r
}

func telegramMessage(update, message, chat int, text string) []byte {
	return fmt.Appendf(nil, `{"update_id":%d,"message":{"message_id":%d,"from":{"id":%d,"is_bot":false,"first_name":"Mo"},`+
		`"chat":{"id":%[3]d,"type":"private","first_name":"Mo"},"date":1790000000,"text":%[4]q}}`, update, message, chat, text)
}

// signMail returns a relay's request with that mail for the desk.
func signMail(t testing.TB, in *instance, raw []byte) *http.Request {
	t.Helper()
	const from, to = "sender@example.org", "desk@example.com"
	desk := install("acme-desk")
	sum := sha256.Sum256(append([]byte(from+"\x00"+to+"\x00"), raw...))
	id := "msg_" + hex.EncodeToString(sum[:])
	now := time.Now()
	signer, err := standardwebhooks.NewWebhook(desk.value)
	if err != nil {
		t.Fatalf("sign a mail: %v", err)
	}
	signature, err := signer.Sign(id, now, raw)
	if err != nil {
		t.Fatalf("sign a mail: %v", err)
	}
	r := post(t, in.public+"/in/cfworker/"+desk.id, raw)
	r.Header.Set("Content-Type", "message/rfc822")
	r.Header.Set("Admitone-Mail-From", url.PathEscape(from))
	r.Header.Set("Admitone-Rcpt-To", url.PathEscape(to))
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("webhook-signature", signature)
	return r
}

func mail(messageID, subject, text string) []byte {
	return []byte(strings.ReplaceAll("From: sender@example.org\nTo: desk@example.com\nSubject: "+subject+
		"\nDate: Tue, 03 Feb 2026 09:15:00 +0100\nMessage-ID: <"+messageID+">\n\n"+text+"\n", "\n", "\r\n"))
}
