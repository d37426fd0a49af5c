package wechat_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/wechat"
	"github.com/admitone/admitone/domain"
)

func textOf(inner string) string {
	return "<xml><ToUserName>" + account + "</ToUserName><FromUserName>" + user + "</FromUserName>" +
		"<CreateTime>1789999999</CreateTime><MsgType>text</MsgType>" + inner + "</xml>"
}

func TestHostileBodyIsUnreadable(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	for name, body := range map[string]string{
		"empty":            "",
		"text":             "MsgType=text",
		"array":            "[]",
		"empty object":     "{}",
		"broken JSON":      `{"MsgType":"text"`,
		"deep JSON":        `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}",
		"no children":      "<xml>words</xml>",
		"another root":     "<html><p>no</p></html>",
		"two roots":        textOf("") + textOf(""),
		"text behind":      textOf("") + "x",
		"not closed":       "<xml><MsgType>text</MsgType>",
		"wrongly closed":   "<xml><MsgType>text</xml></MsgType>",
		"deep XML":         "<xml>" + strings.Repeat("<a>", 5000) + strings.Repeat("</a>", 5000) + "</xml>",
		"own entity":       `<!DOCTYPE xml [<!ENTITY a "b">]>` + textOf("<Content>&a;</Content>"),
		"entity bomb":      `<!DOCTYPE xml [<!ENTITY a "bbbb"><!ENTITY b "&a;&a;&a;&a;">]><xml><MsgType>&b;</MsgType></xml>`,
		"external entity":  `<!DOCTYPE xml [<!ENTITY a SYSTEM "file:///etc/hostname">]><xml><MsgType>&a;</MsgType></xml>`,
		"unknown entity":   textOf("<Content>&nbsp;</Content>"),
		"another encoding": `<?xml version="1.0" encoding="gb2312"?>` + textOf(""),
		"no key for it":    "<xml><ToUserName>" + account + "</ToUserName><Encrypt>AAAA</Encrypt></xml>",
	} {
		r := post(body)
		if err := e.Verify(r); err != nil {
			t.Fatalf("Verify: %v", err)
		}
		if b, err := e.Extract(r); !errors.Is(err, domain.ErrUnreadable) || len(b.Events) != 0 {
			t.Errorf("%s: Extract = %d events, %v; want ErrUnreadable", name, len(b.Events), err)
		}
	}
}

// People have written characters that XML forbids, and WeChat passes them on.
func TestForbiddenCharactersAreReplaced(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	for content, want := range map[string]string{
		"<![CDATA[a\x08b]]>":                "a\ufffdb",
		"<![CDATA[a\x00b]]>":                "a\ufffdb",
		"<![CDATA[a\xffb]]>":                "a\ufffdb",
		"<![CDATA[a\ufffeb]]>":              "a\ufffdb",
		"<![CDATA[\U0001F6A2 \t\n]]>":       "\U0001F6A2 \t\n",
		"&lt;b&gt; &amp;amp; <![CDATA[&]]>": "<b> &amp; &",
		"<![CDATA[<MsgId>2</MsgId>]]>":      "<MsgId>2</MsgId>",
	} {
		ev := event(t, e, post("\ufeff \r\n"+textOf("<Content>"+content+"</Content><MsgId>1</MsgId>")))
		c, err := wechat.New().Decode(ev)
		if err != nil || c.Text != want || ev.ID != "msg:"+user+":1" {
			t.Errorf("%q: event %q with text %q, %v; want %q", content, ev.ID, c.Text, err, want)
		}
	}
}

// BR-77, BR-57, BR-78.
func TestFirstOfEqualNamesCountsInItsExactCase(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	for _, body := range []string{
		textOf("<msgid>9</msgid><MsgId>18446744073709551616</MsgId><MsgId>2</MsgId><MsgID>3</MsgID><FromUserName>other</FromUserName>"),
		`{"msgid":9,"MsgType":"text","FromUserName":"` + user + `","MsgId":18446744073709551616,"MsgId":2,"MsgID":3,"FromUserName":"other"}`,
	} {
		if got := event(t, e, post(body)).ID; got != "msg:"+user+":18446744073709551616" {
			t.Errorf("%.60s…: ID = %q", body, got)
		}
	}
}

func TestMissingNumberGivesAFallback(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	ids := map[string]string{}
	for _, body := range []string{
		textOf("<Content>a</Content>"),
		textOf("<Content>b</Content>"),
		textOf("<MsgId></MsgId>"),
		"<xml><MsgType>text</MsgType><MsgId>1</MsgId></xml>",
		"<xml><MsgType>event</MsgType><FromUserName>u</FromUserName><CreateTime>1</CreateTime></xml>",
		"<xml><MsgType>event</MsgType><FromUserName>u</FromUserName><Event>CLICK</Event></xml>",
		"<xml><InfoType>component_verify_ticket</InfoType></xml>",
		`{"a":1}`,
	} {
		ev := event(t, e, post(body))
		if !strings.HasPrefix(ev.ID, "fallback:") || ids[ev.ID] != "" || ev.MessageKey != "" {
			t.Errorf("%s: id %q and message key %q; want a fallback of its own and none", body, ev.ID, ev.MessageKey)
		}
		ids[ev.ID] = body
	}
}

func TestRawIsTheWholeMessage(t *testing.T) {
	t.Parallel()
	ev := event(t, open(t, credentials("plain")), load(t, "scancode_nested"))
	c, err := wechat.New().Decode(ev)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	var got map[string]any
	if err := json.Unmarshal(c.Raw, &got); err != nil {
		t.Fatalf("raw: %v", err)
	}
	want := map[string]any{
		"ToUserName": account, "FromUserName": user, "CreateTime": "1789999995", "MsgType": "event",
		"Event": "scancode_push", "EventKey": "scan",
		"ScanCodeInfo": map[string]any{"ScanType": "qrcode", "ScanResult": "berth-4"},
		"SendPicsInfo": map[string]any{"Count": "2", "PicList": map[string]any{
			"item": []any{map[string]any{"PicMd5Sum": "aa"}, map[string]any{"PicMd5Sum": "bb"}},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("raw %v; want %v", got, want)
	}
}

func TestFilesAreAttachments(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	for name, want := range map[string]domain.Attachment{
		"image":                      {URL: "https://mmbiz.qpic.example/pic/0", Type: "image/jpeg"},
		"video_msgid_other_spelling": {URL: "wechat-media:media-invented-0004", Type: "video/mp4"},
		"voice_shared_msgid_user_1":  {URL: "wechat-media:media-invented-0001", Type: "audio/amr"},
		"voice_shared_msgid_user_2":  {URL: "wechat-media:media-invented-0002", Type: "audio/speex"},
		"link":                       {URL: "https://tides.example/9?a=1&b=2", Name: "Tide table"},
	} {
		c, err := wechat.New().Decode(event(t, e, load(t, name)))
		if err != nil || len(c.Attachments) != 1 || c.Attachments[0] != want {
			t.Errorf("%s: %+v, %v; want %+v", name, c.Attachments, err, want)
		}
	}
}

func FuzzExtract(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(raw), "\n\n")
		f.Add([]byte(body))
	}
	for _, seed := range []string{"", "<", "<xml>", "{", `{"MsgId":1e999}`, "<xml><a b='c'/></xml>", "<xml><a><a/></a>t</xml>", `{"MsgType":{"a":1}}`} {
		f.Add([]byte(seed))
	}
	e := open(f, credentials("plain"))
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := e.Extract(&channels.Request{Method: http.MethodPost, URL: "/x", Body: body, Now: now})
		if err != nil {
			if !errors.Is(err, domain.ErrUnreadable) || len(b.Events) != 0 {
				t.Fatalf("Extract = %d events, %v", len(b.Events), err)
			}
			return
		}
		for _, ev := range b.Events {
			for _, id := range []string{ev.ID, ev.Account, ev.MessageKey, ev.Conversation} {
				if id != domain.StorableID(id) {
					t.Errorf("%q can't be stored", id)
				}
			}
			c, err := wechat.New().Decode(ev)
			if err != nil {
				t.Fatalf("Decode of what Extract has read: %v", err)
			}
			if !json.Valid(c.Raw) || !utf8.Valid(c.Raw) {
				t.Errorf("raw is no JSON: %q", c.Raw)
			}
			if _, err := json.Marshal(c); err != nil {
				t.Errorf("content is no JSON: %v", err)
			}
		}
	})
}

// In safe mode only what can be decrypted is read, so the body stands for the decrypted text.
func FuzzVerify(f *testing.F) {
	raw, err := os.ReadFile("testdata/text_encrypted.http")
	if err != nil {
		f.Fatal(err)
	}
	_, body, _ := strings.Cut(string(raw), "\n\n")
	genuine := encryptElement.FindStringSubmatch(body)[1]
	for _, seed := range []string{genuine, genuine[:64], "AAAA", "", strings.Repeat("A", 64), strings.Repeat("A", 44) + "="} {
		f.Add(seed)
	}
	e := open(f, credentials("aes"))
	f.Fuzz(func(t *testing.T, encrypted string) {
		envelope, err := json.Marshal(map[string]string{"Encrypt": encrypted})
		if err != nil {
			t.Fatal(err)
		}
		r := &channels.Request{Method: http.MethodPost, URL: "/x?nonce=1&encrypt_type=aes", Body: envelope, Now: now}
		sign(r)
		if err := e.Verify(r); err != nil {
			if !errors.Is(err, domain.ErrUnauthenticated) {
				t.Errorf("Verify = %v; want ErrUnauthenticated", err)
			}
			return
		}
		if _, err := e.Extract(r); err != nil && !errors.Is(err, domain.ErrUnreadable) {
			t.Errorf("Extract = %v; want ErrUnreadable", err)
		}
	})
}

func BenchmarkVerifyAndExtract(b *testing.B) {
	for _, name := range []string{"text_plain", "text_json", "text_encrypted"} {
		b.Run(name, func(b *testing.B) {
			raw, err := os.ReadFile("testdata/" + name + ".http")
			if err != nil {
				b.Fatal(err)
			}
			head, body, _ := strings.Cut(string(raw), "\n\n")
			r := &channels.Request{Method: http.MethodPost, URL: strings.Fields(head)[1], Body: []byte(body), Now: now}
			e := open(b, credentials("plain"))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Verify(r); err != nil {
					b.Fatal(err)
				}
				if batch, err := e.Extract(r); err != nil || len(batch.Events) != 1 {
					b.Fatal(err)
				}
			}
		})
	}
}
