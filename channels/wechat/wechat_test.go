package wechat_test

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/wechat"
	"github.com/admitone/admitone/domain"
)

const (
	token   = "kestreltoken"
	aesKey  = "S2VzdHJlbFRlc3RLZXlGb3JXZUNoYXRTYW1wbGVzMDE"
	appID   = "wx0kestrel7e57app1"
	account = "gh_0kestreltest"
	user    = "oKestrel-Invented_OpenId0001"
)

var now = time.Unix(1790000000, 0)

func credentials(mode string) channels.Credentials {
	return channels.Credentials{
		Account:  account,
		Secrets:  map[string][]string{"token": {token}, "encoding_aes_key": {aesKey}},
		Settings: channels.Settings{"app_id": appID, "mode": mode},
	}
}

// The fixtures of either mode; all others are encrypted.
var (
	plain = []string{
		"card_got_first", "card_got_second_same_second", "click_north", "click_south_same_second", "event_subscribe",
		"event_unknown", "image", "link", "location", "menu_location_same_second", "menu_view", "scancode_nested",
		"template_sent", "text_json", "text_json_msgid_text", "text_plain", "text_plain_retry_same_query",
		"text_without_msgid", "unsubscribe", "video_msgid_other_spelling", "voice_shared_msgid_user_1", "voice_shared_msgid_user_2",
	}
	refused = []string{
		"refused_encrypted_for_another_app", "refused_encrypted_other_token", "refused_other_token",
		"refused_signature_of_another_ciphertext", "refused_stale",
	}
	probes = []string{"cloud_path_check", "cloud_path_check_json"}
)

// An account in plain mode that has a key takes both forms, so all fixtures are genuine.
func TestChannelKeepsItsPromisesInPlainMode(t *testing.T) {
	channeltest.Run(t, channeltest.Spec{
		Channel:     wechat.New(),
		Credentials: credentials("plain"),
		Now:         now,
		Tolerance:   5 * time.Minute,
		Refused:     refused,
		Unreadable:  []string{"unreadable_encrypted", "unreadable_plain"},
		Handshakes:  append([]string{"cloud_path_check_encrypted", "echostr_get"}, probes...),
		Sign:        sign,
	})
}

func TestChannelKeepsItsPromisesInSafeMode(t *testing.T) {
	channeltest.Run(t, channeltest.Spec{
		Channel:     wechat.New(),
		Credentials: credentials("aes"),
		Now:         now,
		Tolerance:   5 * time.Minute,
		Refused:     slices.Concat(refused, plain, probes, []string{"unreadable_plain"}),
		Unreadable:  []string{"unreadable_encrypted"},
		Handshakes:  []string{"cloud_path_check_encrypted", "echostr_get"},
		BodySigned:  true,
		Sign:        sign,
	})
}

var encryptElement = regexp.MustCompile(`(?s)<Encrypt>(?:<!\[CDATA\[)?(.*?)(?:\]\]>)?</Encrypt>`)

// sign makes r one that WeChat sends at r.Now.
func sign(r *channels.Request) {
	path, query, _ := strings.Cut(r.URL, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return
	}
	at := strconv.FormatInt(r.Now.Unix(), 10)
	q.Set("timestamp", at)
	q.Set("signature", signature(token, at, q.Get("nonce")))
	if q.Get("encrypt_type") == "aes" {
		encrypted := gjson.GetBytes(r.Body, "Encrypt").String()
		if m := encryptElement.FindSubmatch(r.Body); m != nil {
			encrypted = string(m[1])
		}
		q.Set("msg_signature", signature(token, at, q.Get("nonce"), encrypted))
	}
	r.URL = path + "?" + q.Encode()
}

func signature(parts ...string) string {
	slices.Sort(parts)
	sum := sha1.Sum([]byte(strings.Join(parts, "")))
	return hex.EncodeToString(sum[:])
}

func open(t testing.TB, c channels.Credentials) channels.Endpoint {
	t.Helper()
	e, err := wechat.New().Open(c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

func load(t *testing.T, name string) *channels.Request {
	t.Helper()
	return channeltest.Load(t, "testdata/"+name+".http", "", now)
}

// post returns a signed plain request with body.
func post(body string) *channels.Request {
	r := &channels.Request{Method: http.MethodPost, URL: "/in/wechat/a?nonce=1180733442", Header: http.Header{}, Body: []byte(body), Now: now}
	sign(r)
	return r
}

// event returns the one event in r, after r was verified.
func event(t testing.TB, e channels.Endpoint, r *channels.Request) domain.Event {
	t.Helper()
	if err := e.Verify(r); err != nil {
		t.Fatalf("Verify: %v", err)
	}
	b, err := e.Extract(r)
	if err != nil {
		t.Fatalf("Extract: %v", err)
	}
	if len(b.Events) != 1 || b.Reply == nil || string(b.Reply.Body) != "success" || b.Reply.ContentType != "text/plain" {
		t.Fatalf("Extract = %d events, reply %+v; want one event and success", len(b.Events), b.Reply)
	}
	return b.Events[0]
}

func TestSamples(t *testing.T) {
	t.Parallel()
	const user2 = "oKestrel-Invented_OpenId0002"
	for name, want := range map[string]struct {
		kind domain.Kind
		key  string // of the message
		text string
	}{
		"text_plain":                            {domain.MessageCreated, user + ":24790000000000001", "末班船几点？ "},
		"text_plain_retry_same_query":           {domain.MessageCreated, user + ":24790000000000001", "末班船几点？ "},
		"text_encrypted":                        {domain.MessageCreated, user + ":24790000000000002", "加密：两张票"},
		"text_encrypted_retry_other_ciphertext": {domain.MessageCreated, user + ":24790000000000002", "加密：两张票"},
		"event_subscribe":                       {domain.Membership, "", "qrscene_pier9"},
		"unsubscribe":                           {domain.Membership, "", ""},
		"image":                                 {domain.MessageCreated, user + ":24790000000000101", ""},
		"video_msgid_other_spelling":            {domain.MessageCreated, user + ":24790000000000102", ""},
		"voice_shared_msgid_user_1":             {domain.MessageCreated, user + ":24790000000000100", "明天见"},
		"voice_shared_msgid_user_2":             {domain.MessageCreated, user2 + ":24790000000000100", ""},
		"location":                              {domain.MessageCreated, user + ":24790000000000103", "Pier 9"},
		"link":                                  {domain.MessageCreated, user + ":24790000000000104", "Tide table"},
		"click_north":                           {domain.Interaction, "", "north"},
		"menu_view":                             {domain.Interaction, "", "https://ferry.example/menu?x=1"},
		"menu_location_same_second":             {domain.Other, "", ""},
		"template_sent":                         {domain.MessageStatus, "", ""},
		"event_unknown":                         {domain.Other, "", ""},
		"text_json":                             {domain.MessageCreated, user + ":9223372036854775807", "Two tickets – 🚢"},
		"text_json_msgid_text":                  {domain.MessageCreated, user + ":49d72d67b16d115e7935ac386f2f0fa41535298877_1555684067", "hello"},
		"event_json_encrypted":                  {domain.Interaction, "", "berth 4"},
		"compatible_mode_other_words_in_the_plain_part": {domain.MessageCreated, user + ":24790000000000105", "the true words"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev := event(t, open(t, credentials("plain")), load(t, name))
			c, err := wechat.New().Decode(ev)
			if err != nil {
				t.Fatalf("Decode: %v", err)
			}
			key := strings.TrimPrefix(ev.MessageKey, "message:")
			if ev.Kind != want.kind || key != want.key || c.Text != want.text || ev.Account != account {
				t.Errorf("kind %s, message %q, text %q, account %q; want %s, %q, %q, %q",
					ev.Kind, key, c.Text, ev.Account, want.kind, want.key, want.text, account)
			}
			if key != "" && ev.ID != "msg:"+key {
				t.Errorf("id %q; want that of the message", ev.ID)
			}
		})
	}
}

func TestSameMessageIsSameEvent(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	for _, pair := range [][2]string{
		{"text_plain", "text_plain_retry_same_query"},
		{"text_encrypted", "text_encrypted_retry_other_ciphertext"},
	} {
		a, b := event(t, e, load(t, pair[0])), event(t, e, load(t, pair[1]))
		if a.ID != b.ID || a.Digest != b.Digest {
			t.Errorf("%s: %q and %q, digests %s and %s; want equal ones", pair[1], a.ID, b.ID, a.Digest, b.Digest)
		}
	}
}

func TestEventsOfOneSecondAreApart(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	for _, pair := range [][2]string{
		{"voice_shared_msgid_user_1", "voice_shared_msgid_user_2"},
		{"menu_view", "menu_location_same_second"},
		{"click_north", "click_south_same_second"},
		{"card_got_first", "card_got_second_same_second"},
	} {
		if a, b := event(t, e, load(t, pair[0])), event(t, e, load(t, pair[1])); a.ID == b.ID {
			t.Errorf("%s and %s are both %q", pair[0], pair[1], a.ID)
		}
	}
}

// BR-68: a challenge is answered every time, whoever has been asked before.
func TestAddressCheckIsEchoedExactly(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"plain", "aes"} {
		e, r := open(t, credentials(mode)), load(t, "echostr_get")
		for range 2 {
			if err := e.Verify(r); err != nil {
				t.Fatalf("Verify: %v", err)
			}
			b, err := e.Extract(r)
			if err != nil || len(b.Events) != 0 || b.Reply == nil {
				t.Fatalf("Extract = %+v, %v; want a reply alone", b, err)
			}
			if got := string(b.Reply.Body); got != "6019273846519028375" || b.Reply.ContentType != "text/plain" {
				t.Errorf("reply %q as %s", got, b.Reply.ContentType)
			}
		}
		r.Body = []byte("<xml/>")
		if err := e.Verify(r); !errors.Is(err, domain.ErrUnauthenticated) {
			t.Errorf("Verify of a GET with a body = %v; want ErrUnauthenticated", err)
		}
	}
}

func TestCloudPathCheckDispatchesNothing(t *testing.T) {
	t.Parallel()
	e := open(t, credentials("plain"))
	for _, name := range append([]string{"cloud_path_check_encrypted"}, probes...) {
		r := load(t, name)
		if err := e.Verify(r); err != nil {
			t.Fatalf("%s: Verify: %v", name, err)
		}
		b, err := e.Extract(r)
		if err != nil || len(b.Events) != 0 || b.Reply == nil || string(b.Reply.Body) != "success" {
			t.Errorf("%s: Extract = %+v, %v; want success alone", name, b, err)
		}
	}
}

func TestUnfitCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	with := func(key []string, settings channels.Settings) channels.Credentials {
		return channels.Credentials{Account: account, Secrets: map[string][]string{"token": {token}, "encoding_aes_key": key}, Settings: settings}
	}
	for tells, c := range map[string]channels.Credentials{
		"encoding_aes_key: missing":        with(nil, channels.Settings{"app_id": appID}),
		"encoding_aes_key: number 2":       with([]string{aesKey, aesKey[1:]}, channels.Settings{"app_id": appID}),
		"encoding_aes_key: number 1":       with([]string{aesKey[1:] + "="}, channels.Settings{"app_id": appID}),
		"app_id: missing":                  with([]string{aesKey}, nil),
		"mode: \"safe\" is neither":        with([]string{aesKey}, channels.Settings{"app_id": appID, "mode": "safe"}),
		"app_id: missing: an encrypted":    with([]string{aesKey}, channels.Settings{"mode": "plain"}),
		"missing: needed unless the setti": with(nil, channels.Settings{"app_id": appID, "mode": "aes"}),
	} {
		_, err := wechat.New().Open(c)
		if err == nil || !strings.Contains(err.Error(), tells) || strings.Contains(err.Error(), aesKey[1:]) {
			t.Errorf("Open = %v; want an error that tells %q and no key", err, tells)
		}
	}
}
