package wechat

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// simulatedSecond is when every simulated message was written. A repeat is the same message
// again, so nothing in it may follow the clock.
const simulatedSecond = 1_790_000_000

// simulate returns a text of s.From, encrypted unless the account is in plain mode. At WeChat
// the number of the event is that of the message, so both of s make the MsgId.
func simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	e, err := openEndpoint(c)
	if err != nil {
		return nil, err
	}
	account, from := s.Account, s.From
	if account == "" {
		account = c.Account
	}
	if from == "" {
		from = "oSimulated_OpenId00000000001"
	}
	sum := domain.DigestOf("wechat", s.EventID, s.Message)
	body := fmt.Sprintf("<xml><ToUserName>%s</ToUserName>\n<FromUserName>%s</FromUserName>\n<CreateTime>%d</CreateTime>\n"+
		"<MsgType>%s</MsgType>\n<Content>%s</Content>\n<MsgId>%d</MsgId>\n</xml>",
		cdata(account), cdata(from), simulatedSecond, cdata("text"), cdata(s.Text), binary.BigEndian.Uint64(sum[:8])>>1)

	at := strconv.FormatInt(s.Now.Unix(), 10)
	nonce := strconv.FormatUint(uint64(binary.BigEndian.Uint32(sum[8:12])), 10)
	q := url.Values{
		"timestamp": {at}, "nonce": {nonce}, "openid": {from},
		"signature": {signature([]string{e.tokens[0], at, nonce})},
	}
	if !e.plain {
		encrypted := e.encrypt(sum, []byte(body))
		body = fmt.Sprintf("<xml>\n    <ToUserName>%s</ToUserName>\n    <Encrypt>%s</Encrypt>\n</xml>\n", cdata(account), cdata(encrypted))
		q.Set("encrypt_type", "aes")
		q.Set("msg_signature", signature([]string{e.tokens[0], at, nonce, encrypted}))
	}
	r, err := http.NewRequest(http.MethodPost, s.URL+"?"+q.Encode(), strings.NewReader(body)) //nolint:noctx // the caller sends it
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	r.Header.Set("Content-Type", "text/xml")
	r.Header.Set("User-Agent", "Mozilla/4.0")
	return r, nil
}

// cdata returns text as XML that needs no other escape.
func cdata(text string) string {
	return "<![CDATA[" + strings.ReplaceAll(text, "]]>", "]]]]><![CDATA[>") + "]]>"
}
