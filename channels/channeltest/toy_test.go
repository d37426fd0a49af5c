package channeltest_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/domain"
)

const tolerance = 5 * time.Minute

// toySpec describes the toy channel with one bug, or none.
func toySpec(bug string) channeltest.Spec {
	credentials := channels.Credentials{Account: "A1", Secrets: map[string][]string{"key": {"toy-secret-one"}}}
	return channeltest.Spec{
		Channel:       newToy(bug),
		Credentials:   credentials,
		Now:           time.Unix(1790000000, 0),
		Tolerance:     tolerance,
		Refused:       []string{"forged"},
		Unreadable:    []string{"array"},
		ByContent:     []string{"poke"},
		SignedHeaders: []string{"Toy-Timestamp", "Toy-Signature"},
		BodySigned:    true,
		RetryHeaders:  http.Header{"Toy-Retry": {"3"}},
		Sign: func(r *channels.Request) {
			signToy(r.Header, credentials.Secrets["key"][0], r.Body, r.Now)
		},
	}
}

func signToy(h http.Header, key string, body []byte, now time.Time) {
	at := strconv.FormatInt(now.Unix(), 10)
	h.Set("Toy-Timestamp", at)
	h.Set("Toy-Signature", hex.EncodeToString(toyMAC(key, at, body)))
}

func toyMAC(key, at string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// A toy is the channel of an invented vendor. bug names the one promise it breaks.
type toy struct {
	bug string

	mu   sync.Mutex // the toy keeps no state; some of its bugs do
	last []byte
	text map[string]string
}

func newToy(bug string) channels.Channel {
	t := &toy{bug: bug, text: make(map[string]string)}
	c := channels.Channel{
		Name:     "toy",
		Platform: "toy",
		Secrets:  []channels.Secret{{Name: "key"}},
		Vendor: channels.Vendor{
			EventID: "event", Scope: "account", Fallback: "none", MessageKey: "message", Unnumbered: "typing",
			Deadline: time.Second, RetryWindow: time.Hour, ComesAgain: true,
			Behaviour: "It comes again.", Source: "invented",
		},
		Open:     t.open,
		Decode:   t.decode,
		Simulate: t.simulate,
		Example:  channels.Credentials{Account: "A1", Secrets: map[string][]string{"key": {"toy-secret-demo"}}},
	}
	switch bug {
	case "named otherwise than its folder":
		c.Name = "toys"
	case "vendor not told":
		c.Vendor.RetryWindow = 0
	case "secret not listed", "sample with a secret that there is not":
		c.Secrets = nil
	case "example not told":
		c.Example = channels.Credentials{}
	case "example that does not open":
		c.Example.Secrets["key"] = []string{"toy secret demo"}
	case "plain text as the answer":
		c.Acknowledge = channels.Reply{ContentType: "text/plain", Body: []byte("OK")}
	case "answer without content type":
		c.Acknowledge = channels.Reply{Body: []byte("<Response/>")}
	case "method of the vendor not used":
		c.Methods = []string{http.MethodGet}
	}
	return c
}

func (t *toy) is(bug string) bool { return t.bug == bug }

func (t *toy) open(c channels.Credentials) (channels.Endpoint, error) {
	keys := c.Secrets["key"]
	if len(keys) == 0 && !t.is("opened without a secret") {
		return nil, errors.New("key: missing")
	}
	for _, k := range keys {
		if k == "" && !t.is("empty secret accepted") {
			return nil, errors.New("key: empty")
		}
		if strings.ContainsAny(k, " \x00") {
			if t.is("secret in the error of Open") {
				return nil, fmt.Errorf("key: %q is unfit", k)
			}
			return nil, errors.New("key: unfit")
		}
	}
	if !t.is("unknown setting accepted") {
		if err := c.Settings.Decode(&struct{}{}); err != nil {
			return nil, err
		}
	}
	if t.is("public_url not allowed") && c.Settings["public_url"] != nil {
		return nil, errors.New("settings: public_url is unknown")
	}
	return &toyEndpoint{toy: t, keys: keys}, nil
}

type toyEndpoint struct {
	*toy
	keys []string
}

func (e *toyEndpoint) Verify(r *channels.Request) error {
	if e.is("other body read than verified, under load") {
		e.mu.Lock()
		e.last = bytes.Clone(r.Body)
		e.mu.Unlock()
	}
	refused := func(why string) error {
		switch {
		case e.is("refusal is an error of its own"):
			return errors.New(why)
		case e.is("secret in the error of Verify"):
			return fmt.Errorf("%w: want a signature by %s", domain.ErrUnauthenticated, e.keys[0])
		case e.is("signature in the error of Verify"):
			return fmt.Errorf("%w: %s", domain.ErrUnauthenticated, r.Header.Get("Toy-Signature"))
		}
		return fmt.Errorf("%w: %s", domain.ErrUnauthenticated, why)
	}
	at, signature := r.Header.Values("Toy-Timestamp"), r.Header.Values("Toy-Signature")
	switch {
	case e.is("signature optional") && len(signature) == 0,
		e.is("empty signature accepted") && len(signature) == 1 && signature[0] == "",
		e.is("time not needed") && len(at) == 0 && len(signature) == 1,
		e.is("all accepted"):
		return nil
	case e.is("all refused"):
		return refused("never")
	case e.is("panics without a signature"):
		_ = signature[0]
	case e.is("first of two headers counts") && len(at) > 0 && len(signature) > 0:
		at, signature = at[:1], signature[:1]
	}
	if len(at) != 1 || len(signature) != 1 {
		return refused("signed headers are missing or doubled")
	}
	seconds, err := strconv.ParseInt(at[0], 10, 64)
	if err != nil {
		return refused("time is no number")
	}
	age := r.Now.Sub(time.Unix(seconds, 0))
	switch {
	case e.is("stale accepted"):
		age = min(age, 0)
	case e.is("future accepted"):
		age = max(age, 0)
	case e.is("tolerance too short") && age.Abs() == tolerance:
		return refused("too old")
	case e.is("tolerance too long"):
		age = age.Truncate(2 * time.Second)
	}
	if age.Abs() > tolerance {
		return refused("too old or too new")
	}
	got, err := hex.DecodeString(signature[0])
	if e.is("half a signature is enough") {
		got, err = hex.DecodeString(signature[0][:len(signature[0])/2*2])
	}
	if err != nil {
		return refused("signature is not hex")
	}
	keys := e.keys
	switch {
	case e.is("first secret alone"):
		keys = keys[:1]
	case e.is("last secret alone"):
		keys = keys[len(keys)-1:]
	case e.is("secret of the fixtures built in"):
		keys = append([]string{"toy-secret-one"}, keys...)
	}
	for _, k := range keys {
		want := toyMAC(k, at[0], r.Body)
		if e.is("half a signature is enough") && len(got) > 0 {
			want = want[:min(len(got), len(want))]
		}
		if e.is("body not signed") && len(got) == len(want) {
			return nil
		}
		if hmac.Equal(got, want) {
			return nil
		}
	}
	return refused("signature is wrong")
}

func (e *toyEndpoint) Extract(r *channels.Request) (channels.Batch, error) {
	body := r.Body
	e.mu.Lock()
	switch {
	case e.is("other body read than verified, under load"):
		body = e.last
	case e.is("body kept") && len(e.last) == len(body):
		body = e.last
	}
	if e.is("body kept") {
		e.last = body
	}
	e.mu.Unlock()

	unreadable := fmt.Errorf("%w: not an object", domain.ErrUnreadable)
	if e.is("unreadable is an error of its own") {
		unreadable = errors.New("not an object")
	}
	if !json.Valid(body) && !e.is("broken JSON read") && !e.is("panics on a control character") {
		return channels.Batch{}, unreadable
	}
	if e.is("panics on a control character") && bytes.IndexFunc(body, unicode.IsControl) >= 0 {
		panic("control character")
	}
	payload := gjson.ParseBytes(body)
	if e.is("panics on a broken body") {
		var p map[string]any
		_ = json.Unmarshal(body, &p)
		_ = p["kind"].(string)
	}
	if !payload.IsObject() {
		if e.is("unreadable ignored") {
			return channels.Batch{}, nil
		}
		return channels.Batch{}, unreadable
	}
	get := func(key string) string { return payload.Get(key).String() }
	last := func(key string) (value string) {
		payload.ForEach(func(k, v gjson.Result) bool {
			if k.String() == key {
				value = v.String()
			}
			return true
		})
		return value
	}
	if e.is("last of two keys counts") {
		get = last
	}
	if e.is("last of two keys counts where there is no id") && get("kind") == "poke" {
		get = last
	}
	if e.is("case of keys ignored") {
		get = func(key string) (value string) {
			payload.ForEach(func(k, v gjson.Result) bool {
				if strings.EqualFold(k.String(), key) {
					value = v.String()
				}
				return true
			})
			return value
		}
	}

	attempt, _ := strconv.Atoi(r.Header.Get("Toy-Retry"))
	ev := domain.Event{
		ID: domain.StorableID(get("event")), Account: domain.StorableID(get("account")),
		Kind: domain.Other, Conversation: domain.StorableID(get("room")), VendorAttempt: attempt,
		Payload: domain.Payload{MediaType: "application/json", Body: body},
		Digest:  domain.DigestOf(string(body)),
	}
	switch get("kind") {
	case "message":
		ev.Kind = domain.MessageCreated
		if id := payload.Get("message"); id.Type == gjson.Number || id.Str != "" {
			ev.MessageKey = domain.StorableID("message:" + id.Raw)
		}
	case "edit":
		ev.Kind = domain.MessageEdited
	case "poke":
		if ev.ID == "" {
			ev.ID = "poke:" + ev.Digest.String()
		}
	}
	e.breakEvent(&ev, r, payload)
	return channels.Batch{Events: []domain.Event{ev}}, nil
}

// breakEvent spoils one part of ev.
func (e *toyEndpoint) breakEvent(ev *domain.Event, r *channels.Request, payload gjson.Result) {
	switch e.bug {
	case "id from the retry header":
		ev.ID += r.Header.Get("Toy-Retry")
	case "id from the time of signing":
		ev.ID += r.Header.Get("Toy-Timestamp")
	case "id from an unsigned header":
		ev.ID += r.Header.Get("X-Request-Id")
	case "id from the text":
		ev.ID = domain.StorableID(payload.Get("text").String())
	case "id from the second":
		ev.ID = payload.Get("at").Raw
	case "id random":
		ev.ID = rand.Text()
	case "missing id shared by all":
		ev.ID = domain.StorableID("toy:" + payload.Get("event").String())
	case "message key of nothing":
		if ev.Kind == domain.MessageCreated {
			ev.MessageKey = domain.StorableID("message:" + payload.Get("message").String())
		}
	case "id of nothing":
		if get := payload.Get("event"); get.Exists() {
			ev.ID = domain.StorableID("event:" + get.String())
		}
	case "id of content from the text alone":
		if strings.HasPrefix(ev.ID, "poke:") {
			ev.ID = domain.StorableID("poke:" + payload.Get("text").String())
		}
	case "id of content the same for all":
		if strings.HasPrefix(ev.ID, "poke:") {
			ev.ID = "poke:"
		}
	case "id that can't be stored":
		ev.ID = payload.Get("event").String()
	case "conversation that can't be stored":
		ev.Conversation = payload.Get("room").String()
	case "digest from the headers":
		ev.Digest = domain.DigestOf(r.Header.Get("Toy-Retry"))
	case "digest missing":
		ev.Digest = domain.Digest{}
	case "kind unknown":
		ev.Kind = "message"
	case "edit with the key of its message":
		ev.MessageKey = domain.StorableID("message:" + payload.Get("message").Raw)
	case "message key through a float":
		if ev.MessageKey != "" {
			ev.MessageKey = fmt.Sprintf("message:%.0f", payload.Get("message").Float())
		}
	case "message key from the event":
		if ev.MessageKey != "" {
			ev.MessageKey = ev.ID
		}
	case "message key the same for all":
		if ev.MessageKey != "" {
			ev.MessageKey = "message"
		}
	case "account from a header":
		ev.Account = r.Header.Get("User-Agent")
	case "payload dropped":
		ev.Payload = domain.Payload{}
	case "text remembered by id":
		e.mu.Lock()
		e.text[ev.ID] = payload.Get("text").String()
		e.mu.Unlock()
	}
}

func (t *toy) decode(ev domain.Event) (domain.Content, error) {
	payload := gjson.ParseBytes(ev.Payload.Body)
	valid := func(key string) string { return strings.ToValidUTF8(payload.Get(key).String(), "\uFFFD") }
	c := domain.Content{
		Conversation: domain.Conversation{ExternalID: ev.Conversation},
		Sender:       domain.Sender{ID: valid("from")},
		Text:         valid("text"),
		Raw:          bytes.ToValidUTF8(ev.Payload.Body, []byte("\uFFFD")),
	}
	switch t.bug {
	case "text remembered by id":
		t.mu.Lock()
		defer t.mu.Unlock()
		c.Text = t.text[ev.ID]
	case "raw not JSON":
		c.Raw = json.RawMessage(c.Text)
	case "raw with bytes that are not UTF-8":
		c.Raw = ev.Payload.Body
	case "raw through floats":
		var v any
		if err := json.Unmarshal(c.Raw, &v); err != nil {
			return c, fmt.Errorf("%w: %w", domain.ErrUnreadable, err)
		}
		c.Raw, _ = json.Marshal(v)
	case "raw not whole":
		c.Raw = json.RawMessage(`{}`)
	case "text not UTF-8":
		c.Text = payload.Get("text").String()
	case "time that JSON can't hold":
		c.Time = time.Unix(payload.Get("at").Int(), 0)
	case "secret in the error of Decode":
		if payload.Get("kind").Type != gjson.String {
			return c, fmt.Errorf("%w: toy-secret-one", domain.ErrUnreadable)
		}
	}
	return c, nil
}

func (t *toy) simulate(c channels.Credentials, s channels.Simulation) (*http.Request, error) {
	message := "9" + fmt.Sprintf("%x", s.Message)
	if s.From == "" && t.bug != "simulated nobody writes" {
		s.From = "somebody"
	}
	switch t.bug {
	case "simulated retry is another event":
		s.EventID += strconv.Itoa(s.Retry)
	case "simulated events share an id":
		s.EventID = "e"
	case "simulated events share an id unless numbers":
		if n, err := strconv.Atoi(s.EventID); err != nil {
			s.EventID = strconv.Itoa(n)
		}
	case "simulated messages share a key":
		message = "9"
	case "simulated text is another":
		s.Text = strings.ToUpper(s.Text)
	case "simulated senders share a conversation":
		s.From = "u"
	}
	body, err := json.Marshal(map[string]any{
		"event": s.EventID, "account": s.Account, "kind": "message", "message": message,
		"room": "room of " + s.From, "from": s.From, "text": s.Text, "at": 1789999999,
	})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body)) //nolint:noctx // the sender's
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.Retry > 0 {
		r.Header.Set("Toy-Retry", strconv.Itoa(s.Retry))
	}
	key := c.Secrets["key"][0]
	if t.is("simulator signs with the built-in secret") {
		key = "toy-secret-one"
	}
	if !t.is("simulator does not sign") {
		signToy(r.Header, key, body, s.Now)
	}
	return r, nil
}
