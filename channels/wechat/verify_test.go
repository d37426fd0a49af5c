package wechat_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/wechat"
	"github.com/admitone/admitone/domain"
)

// The vectors of WeChat's documents: of doc/subscription/guide/dev/push/encryption.html, of
// the same page for third-party platforms, and of the sample code in five languages.
func TestPublishedVectorsAreAccepted(t *testing.T) {
	t.Parallel()
	allA := strings.Repeat("A", 43)
	for name, v := range map[string]struct {
		token, key, app, mode string
		method, query, body   string
		at                    int64
		id, text              string
	}{
		"check of the address": {
			token: "AAAAA", mode: "plain", method: http.MethodGet, at: 1714036504,
			query: "signature=f464b24fc39322e44b38aa78f5edd27bd1441696&echostr=4375120948345356249&timestamp=1714036504&nonce=1514711492",
		},
		"plain": {
			token: "AAAAA", mode: "plain", method: http.MethodPost, at: 1714037059,
			query: "signature=899cf89e464efb63f54ddac96b0a0a235f53aa78&timestamp=1714037059&nonce=486452656",
			body: `{"ToUserName": "gh_97417a04a28d", "FromUserName": "o9AgO5Kd5ggOC-bXrbNODIiE3bGY", "CreateTime": 1714037059,
				"MsgType": "event", "Event": "debug_demo", "debug_str": "hello world"}`,
			id: "event:o9AgO5Kd5ggOC-bXrbNODIiE3bGY:1714037059:debug_demo",
		},
		"safe": {
			token: "AAAAA", key: allA, app: "wxba5fad812f8e6fb9", mode: "aes", method: http.MethodPost, at: 1714112445,
			query: "signature=6c5c811b55cc85e0e1b54100749188c20beb3f5d&timestamp=1714112445&nonce=415670741&openid=o9AgO5Kd5ggOC-bXrbNODIiE3bGY" +
				"&encrypt_type=aes&msg_signature=046e02f8204d34f8ba5fa3b1db94908f3df2e9b3",
			body: `{"ToUserName": "gh_97417a04a28d", "Encrypt": "+qdx1OKCy+5JPCBFWw70tm0fJGb2Jmeia4FCB7kao+/Q5c/ohsOzQHi8khUOb05JCpj0JB4RvQMkUyus8TPxLKJGQqcvZqzDpVzazhZv6JsXUnnR8XGT740XgXZUXQ7vJVnAG+tE8NUd4yFyjPy7GgiaviNrlCTj+l5kdfMuFUPpRSrfMZuMcp3Fn2Pede2IuQrKEYwKSqFIZoNqJ4M8EajAsjLY2km32IIjdf8YL/P50F7mStwntrA2cPDrM1kb6mOcfBgRtWygb3VIYnSeOBrebufAlr7F9mFUPAJGj04="}`,
			id:   "event:o9AgO5Kd5ggOC-bXrbNODIiE3bGY:1714112445:debug_demo",
		},
		"safe, for a third-party platform": {
			token: "AAAAA", key: allA, app: "wx134c8103faa5a59e", mode: "aes", method: http.MethodPost, at: 1715943329,
			query: "signature=cc0c594499c1634947d5b502f158ee518947db27&timestamp=1715943329&nonce=1590219412&openid=o9AgO5Kd5ggOC-bXrbNODIiE3bGY" +
				"&encrypt_type=aes&msg_signature=6c12a4205838198b8fa631b3220723bb07f1015c",
			body: `<xml>
    <ToUserName><![CDATA[gh_97417a04a28d]]></ToUserName>
    <Encrypt><![CDATA[D7yzvUNAL930rd28wf21s4hvXhz0L6Uit/p2Di6C5DHyYGpEgdBRnKjBec34JwoQXicwaZC7fOVihW80F4VtsdvE//1vr7oAbqjDv8KenVp+ajKYpJnyQ4zMRhIC+a31fCVOMC03FfzV/QuC94kBP55a+Za3sJgvAn+ZbsNqZI5DkyuzkhQN8OBqCzFhizGmy0xpM0MEA4agpvE+RuNO1rhHTtuJB5yltw1FiYzecSXJ+y/D2r81VkRn2eYjh2ltsoyfbDR7Is6ookXIFxTfyeNyeHxMeT4KN5WpCDmSbTcUYrbBUlkGLJ9n/rU8YOywma6G7aTb7KZKOqCxgfoUlYEZPk4FUL/TK7ShriFDMVCLyjQJ15Ob++agDWtcxhfUfe6HIoIpRW8mKNBQiY/Jd1svvuskA1wLef1RTtzKfMpagSCX/laZINmdnX4zrF6kIaR9P4xQrWXbsTFHTYe0Mg==]]></Encrypt>
</xml>`,
			id: "event:o9AgO5Kd5ggOC-bXrbNODIiE3bGY:1715943329:debug_demo",
		},
		// Its key has bits set that mean nothing, its pad is longer than a block of AES.
		"compatible, of the sample code": {
			token: "spamtest", key: "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", app: "wx2c2769f8efd9abc2", mode: "aes", method: http.MethodPost, at: 1409735669,
			query: "timestamp=1409735669&nonce=1320562132&encrypt_type=aes&msg_signature=5d197aaffba7e9b25a30732f161a50dee96bd5fa",
			body: `<xml><ToUserName><![CDATA[gh_10f6c3c3ac5a]]></ToUserName><FromUserName><![CDATA[oyORnuP8q7ou2gfYjqLzSIWZf0rs]]></FromUserName>` +
				`<CreateTime>1409735668</CreateTime><MsgType><![CDATA[text]]></MsgType><Content><![CDATA[abcdteT]]></Content><MsgId>6054768590064713728</MsgId>` +
				`<Encrypt><![CDATA[hyzAe4OzmOMbd6TvGdIOO6uBmdJoD0Fk53REIHvxYtJlE2B655HuD0m8KUePWB3+LrPXo87wzQ1QLvbeUgmBM4x6F8PGHQHFVAFmOD2LdJF9FrXpbUAh0B5GIItb52sn896wVsMSHGuPE328HnRGBcrS7C41IzDWyWNlZkyyXwon8T332jisa+h6tEDYsVticbSnyU8dKOIbgU6ux5VTjg3yt+WGzjlpKn6NPhRjpA912xMezR4kw6KWwMrCVKSVCZciVGCgavjIQ6X8tCOp3yZbGpy0VxpAe+77TszTfRd5RJSVO/HTnifJpXgCSUdUue1v6h0EIBYYI1BD1DlD+C0CR8e6OewpusjZ4uBl9FyJvnhvQl+q5rv1ixrcpCumEPo5MJSgM9ehVsNPfUM669WuMyVWQLCzpu9GhglF2PE=]]></Encrypt></xml>`,
			id: "msg:oyORnuP8q7ou2gfYjqLzSIWZf0rs:6054768590064713728", text: "abcdteT",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := channels.Credentials{Secrets: map[string][]string{"token": {v.token}}, Settings: channels.Settings{"app_id": v.app, "mode": v.mode}}
			if v.key != "" {
				c.Secrets["encoding_aes_key"] = []string{v.key}
			}
			e := open(t, c)
			r := &channels.Request{Method: v.method, URL: "/revice?" + v.query, Body: []byte(v.body), Now: time.Unix(v.at, 0)}
			if v.id == "" {
				if err := e.Verify(r); err != nil {
					t.Errorf("Verify: %v", err)
				}
				return
			}
			ev := event(t, e, r)
			content, err := wechat.New().Decode(ev)
			if err != nil || ev.ID != v.id || content.Text != v.text {
				t.Errorf("event %q with text %q, %v; want %q, %q", ev.ID, content.Text, err, v.id, v.text)
			}
		})
	}
}

func TestSafeModeTakesNothingPlain(t *testing.T) {
	t.Parallel()
	safe := open(t, credentials("aes"))
	for name, spoil := range map[string]func(r *channels.Request){
		"as it is":              func(*channels.Request) {},
		"with encrypt_type=raw": func(r *channels.Request) { r.URL += "&encrypt_type=raw" },
		"with msg_signature of the plain signature": func(r *channels.Request) {
			r.URL += "&encrypt_type=aes&msg_signature=" + signature(token, "1790000000", "1180733442")
		},
		"with an empty Encrypt": func(r *channels.Request) {
			r.Body = []byte("<xml><Encrypt></Encrypt></xml>")
			r.URL += "&encrypt_type=aes&msg_signature=" + signature(token, "1790000000", "1180733442", "")
		},
	} {
		r := load(t, "text_plain")
		spoil(r)
		if err := safe.Verify(r); !errors.Is(err, domain.ErrUnauthenticated) {
			t.Errorf("Verify of a plain message %s = %v; want ErrUnauthenticated", name, err)
		}
	}
	stripped := load(t, "text_encrypted")
	stripped.URL = strings.Replace(stripped.URL, "&encrypt_type=aes", "", 1)
	if err := safe.Verify(stripped); err != nil {
		t.Errorf("Verify of an encrypted message without encrypt_type = %v; want nil: the parameter is not signed", err)
	}
}

func TestAnyKeyOfAListDecrypts(t *testing.T) {
	t.Parallel()
	c := credentials("aes")
	c.Secrets["encoding_aes_key"] = []string{strings.Repeat("B", 42) + "A", strings.Repeat("C", 42) + "A", aesKey}
	if got := event(t, open(t, c), load(t, "text_encrypted")).ID; got != "msg:"+user+":24790000000000002" {
		t.Errorf("ID = %q", got)
	}
	c.Secrets["encoding_aes_key"] = c.Secrets["encoding_aes_key"][:2]
	if err := open(t, c).Verify(load(t, "text_encrypted")); !errors.Is(err, domain.ErrUnauthenticated) {
		t.Errorf("Verify without the key = %v; want ErrUnauthenticated", err)
	}
}

// WeChat repeats the query with the request, so a nonce that was seen before is no replay.
func TestRepeatWithTheSameQueryIsAccepted(t *testing.T) {
	t.Parallel()
	e, r := open(t, credentials("plain")), load(t, "text_plain_retry_same_query")
	for _, later := range []time.Duration{0, 5 * time.Second, 10 * time.Second, 20 * time.Second, time.Minute} {
		r.Now = now.Add(later)
		if err := e.Verify(r); err != nil {
			t.Errorf("Verify after %s: %v", later, err)
		}
	}
}

func TestQueryCountsOnlyAsWeChatWritesIt(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	good := "signature=" + signature(token, "1790000000", "1") + "&timestamp=1790000000&nonce=1"
	if err := e.Verify(&channels.Request{Method: http.MethodPost, URL: "/x?" + good, Now: now}); err != nil {
		t.Fatalf("Verify: %v", err)
	}
	for _, bad := range []string{
		"",
		"signature=&timestamp=1790000000&nonce=1",
		good + "&nonce=1",
		good + "&timestamp=1790000000",
		"signature=" + strings.Repeat("0", 40) + "&" + good,
		strings.ToUpper(good[:50]) + good[50:],
		strings.Replace(good, "nonce=1", "nonce=2", 1),
		strings.Replace(good, "nonce=1", "Nonce=1", 1),
		"signature=" + signature(token, "+1790000000", "1") + "&timestamp=%2B1790000000&nonce=1",
		"signature=" + signature(token, "01790000000", "1") + "&timestamp=01790000000&nonce=1",
		"signature=" + signature(token, "1790000000", "") + "&timestamp=1790000000&nonce=",
		"signature=" + signature(token, "", "1790000000") + "&timestamp=&nonce=1790000000",
		"signature=" + signature("", "1790000000", "1") + "&timestamp=1790000000&nonce=1",
		good + "&%zz",
		good + ";x=1",
	} {
		r := &channels.Request{Method: http.MethodPost, URL: "/x?" + bad, Now: now}
		if err := e.Verify(r); !errors.Is(err, domain.ErrUnauthenticated) {
			t.Errorf("Verify with %q = %v; want ErrUnauthenticated", bad, err)
		}
	}
}

// A time of more than 32 bits is no reason to fail.
func TestTimeGoesBeyond32Bits(t *testing.T) {
	t.Parallel()
	r := &channels.Request{
		Method: http.MethodPost, Now: time.Unix(4300000000, 0),
		URL: "/x?signature=" + signature(token, "4300000000", "1") + "&timestamp=4300000000&nonce=1",
	}
	if err := open(t, credentials("plain")).Verify(r); err != nil {
		t.Errorf("Verify: %v", err)
	}
}
