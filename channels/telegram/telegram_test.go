package telegram_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/telegram"
	"github.com/admitone/admitone/domain"
)

const (
	botA   = "tg-secret-bot-A_1"
	botB   = "tg-secret-bot-B_1"
	header = "X-Telegram-Bot-Api-Secret-Token"
)

var now = time.Unix(1790001300, 0)

func credentials(account string, tokens ...string) channels.Credentials {
	return channels.Credentials{Account: account, Secrets: map[string][]string{"secret_token": tokens}}
}

func TestChannelKeepsEveryPromise(t *testing.T) {
	channeltest.Run(t, channeltest.Spec{
		Channel:       telegram.New(),
		Credentials:   credentials("7000000001", botA),
		Now:           now,
		Refused:       []string{"15-bot-b-same-update-id", "22-wrong-secret", "23-missing-secret"},
		SignedHeaders: []string{header},
		Sign:          func(r *channels.Request) { r.Header.Set(header, botA) },
	})
}

func open(t testing.TB, tokens ...string) channels.Endpoint {
	t.Helper()
	e, err := telegram.New().Open(credentials("7000000001", tokens...))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

// extract returns the event of a body that bot A has received.
func extract(t testing.TB, body string) (domain.Event, error) {
	t.Helper()
	b, err := open(t, botA).Extract(&channels.Request{Method: "POST", Body: []byte(body), Now: now})
	if err != nil {
		return domain.Event{}, err
	}
	if len(b.Events) != 1 || b.Reply != nil {
		t.Fatalf("Extract(%.200s) = %d events and reply %v; want one event and none", body, len(b.Events), b.Reply)
	}
	return b.Events[0], nil
}

func mustExtract(t testing.TB, body string) domain.Event {
	t.Helper()
	ev, err := extract(t, body)
	if err != nil {
		t.Fatalf("Extract(%.200s): %v", body, err)
	}
	return ev
}

func mustDecode(t testing.TB, body string) domain.Content {
	t.Helper()
	c, err := telegram.New().Decode(mustExtract(t, body))
	if err != nil {
		t.Fatalf("Decode(%.200s): %v", body, err)
	}
	return c
}

func TestSamples(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file, token, id, key string
		kind                 domain.Kind
		conversation         string
	}{
		{"01-message-text", botA, "845200101", "message:5100000042:311", domain.MessageCreated, "5100000042"},
		{"02-message-text-retry", botA, "845200101", "message:5100000042:311", domain.MessageCreated, "5100000042"},
		{"03-edited-message-same-message-id", botA, "845200102", "", domain.MessageEdited, "5100000042"},
		{"05-callback-query", botA, "845200104", "", domain.Interaction, "5100000042"},
		{"06-callback-query-second-click", botA, "845200105", "", domain.Interaction, "5100000042"},
		{"07-my-chat-member-blocked", botA, "845200106", "", domain.Membership, "5100000042"},
		{"08-message-reaction", botA, "845200107", "", domain.Reaction, "-1002000000077"},
		{"09-message-reaction-removed", botA, "845200108", "", domain.Reaction, "-1002000000077"},
		{"10-album-part-1", botA, "845200109", "message:5100000042:313", domain.MessageCreated, "5100000042"},
		{"11-album-part-2", botA, "845200110", "message:5100000042:314", domain.MessageCreated, "5100000042"},
		{"12-location", botA, "845200111", "message:5100000042:315", domain.MessageCreated, "5100000042"},
		{"13-channel-post-no-from", botA, "845200112", "message:-1002000000099:41", domain.MessageCreated, "-1002000000099"},
		{"15-bot-b-same-update-id", botB, "845200101", "message:5100000042:311", domain.MessageCreated, "5100000042"},
		{"16-group-message-seen-by-bot-a", botA, "845200114", "message:-1002000000077:901", domain.MessageCreated, "-1002000000077"},
		{"19-business-message-connection-1", botA, "845200115", "message:bizconnTEST0001:5100000042:77", domain.MessageCreated, "bizconnTEST0001:5100000042"},
		{"20-business-message-connection-2", botA, "845200116", "message:bizconnTEST0002:5100000042:77", domain.MessageCreated, "bizconnTEST0002:5100000042"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			r := channeltest.Load(t, "testdata/"+tt.file+".http", "", now)
			if err := open(t, tt.token).Verify(r); err != nil {
				t.Fatalf("Verify: %v", err)
			}
			ev := mustExtract(t, string(r.Body))
			if ev.ID != tt.id || ev.Kind != tt.kind || ev.MessageKey != tt.key || ev.Conversation != tt.conversation || ev.Account != "" {
				t.Errorf("Extract = id %q, kind %q, key %q, conversation %q, account %q; want %q, %q, %q, %q and none",
					ev.ID, ev.Kind, ev.MessageKey, ev.Conversation, ev.Account, tt.id, tt.kind, tt.key, tt.conversation)
			}
		})
	}
}

func TestTokenMustBeExact(t *testing.T) {
	t.Parallel()
	// BR-55, BR-66, BR-75.
	for what, values := range map[string][]string{
		"missing": nil, "empty": {""}, "other case": {strings.ToUpper(botA)}, "prefix": {botA[:8]}, "longer": {botA + "1"},
		"blanks around": {" " + botA}, "twice": {botA, botA}, "NUL after": {botA + "\x00"}, "another bot's": {botB},
		"longest": {strings.Repeat("a", 256)}, "too long": {strings.Repeat("a", 257)},
	} {
		r := channeltest.Load(t, "testdata/01-message-text.http", "", now)
		r.Header[header] = values
		if err := open(t, botA).Verify(r); !errors.Is(err, domain.ErrUnauthenticated) {
			t.Errorf("token %s: Verify = %v; want one that wraps ErrUnauthenticated", what, err)
		}
	}
}

func TestUnfitTokenCannotBeConfigured(t *testing.T) {
	t.Parallel()
	// BR-55: an empty token would accept everybody.
	for what, tokens := range map[string][]string{
		"none": nil, "empty": {""}, "one of two empty": {botA, ""}, "blank": {" "}, "too long": {strings.Repeat("a", 257)},
		"dot": {"a.b"}, "line end": {botA + "\n"}, "letters beyond ASCII": {"sécret"},
	} {
		if _, err := telegram.New().Open(credentials("7000000001", tokens...)); err == nil {
			t.Errorf("Open with token %s: no error", what)
		}
	}
	if _, err := telegram.New().Open(credentials("7000000001", strings.Repeat("a", 256))); err != nil {
		t.Errorf("Open with the longest token: %v", err)
	}
}

func BenchmarkVerifyAndExtract(b *testing.B) {
	e := open(b, botA)
	r := &channels.Request{
		Method: "POST",
		Header: map[string][]string{header: {botA}},
		Body: []byte(`{"update_id":845200101,` + "\n" + `"message":{"message_id":311,"from":{"id":5100000042,"is_bot":false,"first_name":"Ines",` +
			`"language_code":"pt"},"chat":{"id":5100000042,"first_name":"Ines","type":"private"},"date":1790001000,"text":"my invoice is missing"}}`),
		Now: now,
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(r.Body)))
	for b.Loop() {
		if err := e.Verify(r); err != nil {
			b.Fatal(err)
		}
		if _, err := e.Extract(r); err != nil {
			b.Fatal(err)
		}
	}
}
