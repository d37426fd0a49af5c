package teams_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/teams"
	"github.com/admitone/admitone/domain"
)

const (
	appID   = "5b0c1f2e-7a44-4d1b-9f0e-3c2d1a09b8e7"
	tenant  = "91d7e3aa-2c65-4e0f-8b1d-6f50c4a7d213"
	service = "https://smba.trafficmanager.net/emea/91d7e3aa-2c65-4e0f-8b1d-6f50c4a7d213/"
)

var now = time.Unix(1790000000, 0)

// ownKey signs what the fixtures' key, of which only the public part is here, can't.
var ownKey = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

// A microsoft serves the metadata and the keys, as they are set at the moment.
type microsoft struct {
	*httptest.Server

	mu       sync.Mutex
	metadata string
	keys     string
	down     bool
	asked    int // for keys
}

func newMicrosoft(t testing.TB, keys string) *microsoft {
	t.Helper()
	m := &microsoft{keys: keys}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case m.down:
			w.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == "/openidconfiguration":
			_, _ = w.Write([]byte(m.metadata))
		case r.URL.Path == "/keys":
			m.asked++
			_, _ = w.Write([]byte(m.keys))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(m.Close)
	m.metadata = strings.ReplaceAll(read(t, "openidconfiguration.json"), "https://login.botframework.com/v1/.well-known", m.URL)
	m.metadata = strings.ReplaceAll(m.metadata, `"RS256"`, `"RS256","RS384","RS512"`)
	return m
}

func (m *microsoft) set(change func(*microsoft)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *microsoft) timesAsked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func (m *microsoft) credentials() channels.Credentials {
	return channels.Credentials{
		Account: tenant, Settings: channels.Settings{"app_id": appID, "openid_metadata": m.URL + "/openidconfiguration"},
	}
}

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// keySet returns a set of keys.
func keySet(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

// jwk returns the public part of ownKey as a JSON Web Key, with more members of it.
func jwk(kid, more string) string {
	encode := base64.RawURLEncoding.EncodeToString
	k := ownKey().PublicKey
	return `{"kty":"RSA","kid":"` + kid + `","n":"` + encode(k.N.Bytes()) + `","e":"` + encode(big.NewInt(int64(k.E)).Bytes()) + `"` + more + `}`
}

// allKeys are those of the fixtures, of sign and of the simulator.
func allKeys(t testing.TB) string {
	t.Helper()
	example, _ := teams.New().Example.Settings["openid_metadata"].(string)
	simulator := gjson.Get(decodeData(t, gjson.Get(decodeData(t, example), "jwks_uri").String()), "keys.0").Raw
	return keySet(gjson.Get(read(t, "jwks.json"), "keys.0").Raw, jwk("own", ""), simulator)
}

func decodeData(t testing.TB, url string) string {
	t.Helper()
	_, text, _ := strings.Cut(url, ";base64,")
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// signed holds tokens, as the connector does: one is good for many requests, and costly.
var signed sync.Map

// sign makes r one that the connector sends at r.Now, whose token is valid for a second.
func sign(r *channels.Request) {
	type key struct {
		at      int64
		service string
	}
	k := key{r.Now.Unix(), gjson.GetBytes(r.Body, "serviceUrl").String()}
	known, ok := signed.Load(k)
	if !ok {
		known, _ = signed.LoadOrStore(k, "Bearer "+token("own", r.Now, map[string]any{"serviceurl": k.service}))
	}
	r.Header.Set("Authorization", known.(string))
}

func token(kid string, at time.Time, other map[string]any) string {
	c := jwt.MapClaims{
		"iss": "https://api.botframework.com", "aud": appID, "serviceurl": service, "nbf": at.Unix(), "exp": at.Unix() + 1,
	}
	maps.Copy(c, other)
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	t.Header["kid"] = kid
	s, err := t.SignedString(ownKey())
	if err != nil {
		panic(err)
	}
	return s
}

func TestChannelKeepsItsPromises(t *testing.T) {
	channeltest.Run(t, channeltest.Spec{
		Channel:     teams.New(),
		Credentials: newMicrosoft(t, allKeys(t)).credentials(),
		Now:         now,
		Tolerance:   5 * time.Minute,
		Refused: []string{
			"refused_alg_none", "refused_another_bot", "refused_another_issuer", "refused_another_service_url", "refused_basic",
			"refused_channel_not_endorsed", "refused_expired", "refused_hs256_with_the_public_key", "refused_no_kid",
			"refused_not_yet_valid", "refused_signature_changed", "refused_unknown_key", "refused_without_exp",
			"refused_without_service_url", "refused_without_service_url_claim", "refused_without_token",
		},
		Unreadable:    []string{"unreadable_without_type"},
		Conflicts:     []string{"message_personal_again_under_new_timestamp"},
		SignedHeaders: []string{"Authorization"},
		Sign:          sign,
	})
}

func open(t testing.TB, c channels.Credentials) channels.Endpoint {
	t.Helper()
	e, err := teams.New().Open(c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

func load(t *testing.T, name string) *channels.Request {
	t.Helper()
	return channeltest.Load(t, "testdata/"+name+".http", "", now)
}

// extract returns the events in a fixture, which was verified.
func extract(t *testing.T, e channels.Endpoint, name string) channels.Batch {
	t.Helper()
	r := load(t, name)
	if err := e.Verify(r); err != nil {
		t.Fatalf("%s: Verify: %v", name, err)
	}
	b, err := e.Extract(r)
	if err != nil {
		t.Fatalf("%s: Extract: %v", name, err)
	}
	return b
}

func event(t *testing.T, e channels.Endpoint, name string) domain.Event {
	t.Helper()
	b := extract(t, e, name)
	if len(b.Events) != 1 {
		t.Fatalf("%s: %d events; want 1", name, len(b.Events))
	}
	return b.Events[0]
}

func TestFixturesGiveTheirEvents(t *testing.T) {
	t.Parallel()
	e := open(t, newMicrosoft(t, allKeys(t)).credentials())
	const personal, channel = "a:1invented-personal-conversation-id_9z8y7x", "19:invented0channel0id0000000000000@thread.tacv2"
	for name, want := range map[string]struct {
		kind                       domain.Kind
		id, conversation, text     string
		numbered, message, replied bool
	}{
		"message_personal":                       {domain.MessageCreated, "message:1789999999123:", personal, "When does the last ferry leave?", true, true, false},
		"message_channel_mention":                {domain.MessageCreated, "message:1789999998001:", channel + ";messageid=1789999998001", "<at>Ferry Desk</at> hold berth 4\n", true, true, false},
		"message_file":                           {domain.MessageCreated, "message:1789999999500:", personal, "the chart", true, true, false},
		"message_without_id":                     {domain.MessageCreated, "fallback:", personal, "no number", true, false, false},
		"message_without_tenant_in_channel_data": {domain.MessageCreated, "message:1789999999600:", personal, "hello", true, true, false},
		"message_rs512_claim_spelt_service_url":  {domain.MessageCreated, "message:1789999999700:", personal, "another hash", true, true, false},
		"message_update":                         {domain.MessageEdited, "messageUpdate:1789999999123:", personal, "When does the last ferry leave today?", true, false, false},
		"message_delete":                         {domain.MessageDeleted, "messageDelete:1789999999123:", personal, "", true, false, false},
		"message_reaction":                       {domain.Reaction, "messageReaction:f:8f78d1f8-0000-4000-8000-000000000003:", personal, "", true, false, false},
		"message_card_submit":                    {domain.Interaction, "message:f:5d0c7e91-aa10-4b7e-8f3e-00000000000a:", personal, "", true, false, false},
		"conversation_update_members_added":      {domain.Membership, "conversationUpdate:f:2b9d0c44-1f6a-4f7e-9c55-000000000002:", channel, "", true, false, false},
		"conversation_update_channel_renamed":    {domain.Other, "conversationUpdate:f:5d0c7e91-aa10-4b7e-8f3e-00000000000e:", channel, "", true, false, false},
		"installation_update":                    {domain.Membership, "installationUpdate:f:5d0c7e91-aa10-4b7e-8f3e-00000000000d:", personal, "", true, false, false},
		"invoke_card_action":                     {domain.Interaction, "invoke:f:5d0c7e91-aa10-4b7e-8f3e-000000000001:", personal, "hold", true, false, true},
		"invoke_task_fetch":                      {domain.Interaction, "invoke:f:5d0c7e91-aa10-4b7e-8f3e-00000000000f:", personal, "", true, false, false},
		"event_meeting_start":                    {domain.Other, "event:f:5d0c7e91-aa10-4b7e-8f3e-00000000000b:", personal, "", true, false, false},
		"activity_of_tomorrow":                   {domain.Other, "hologram:f:5d0c7e91-aa10-4b7e-8f3e-00000000000c:", personal, "", true, false, false},
		"typing_without_id":                      {domain.Other, "", personal, "", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := extract(t, e, name)
			if len(b.Events) != 1 {
				t.Fatalf("%d events; want 1", len(b.Events))
			}
			ev := b.Events[0]
			c, err := teams.New().Decode(ev)
			if err != nil {
				t.Fatalf("Decode: %v", err)
			}
			if ev.Kind != want.kind || !strings.HasPrefix(ev.ID, want.id) || (ev.ID != "") != want.numbered || (ev.MessageKey != "") != want.message {
				t.Errorf("%s %q with message %q; want %s %q…", ev.Kind, ev.ID, ev.MessageKey, want.kind, want.id)
			}
			if ev.Account != tenant || ev.Conversation != want.conversation || c.Conversation.ExternalID != want.conversation || c.Text != want.text {
				t.Errorf("account %q, conversation %q, text %q; want %q, %q, %q", ev.Account, ev.Conversation, c.Text, tenant, want.conversation, want.text)
			}
			if (b.Reply != nil) != want.replied {
				t.Errorf("reply %+v; want one: %t", b.Reply, want.replied)
			}
		})
	}
}

func TestWhatIsTheSame(t *testing.T) {
	t.Parallel()
	e := open(t, newMicrosoft(t, allKeys(t)).credentials())
	a, b := event(t, e, "message_personal"), event(t, e, "message_personal_again_under_new_timestamp")
	if a.ID != b.ID || a.MessageKey != b.MessageKey || a.Digest != b.Digest {
		t.Errorf("a message sent again under a new timestamp: %+v, %+v; want the same event", a, b)
	}
	seen := map[string]string{}
	for _, name := range []string{
		"message_personal", "message_same_millisecond_in_another_conversation", "message_update", "message_update_second",
		"message_delete", "message_reaction_with_the_message_id", "message_without_id",
	} {
		id := event(t, e, name).ID
		if other := seen[id]; other != "" {
			t.Errorf("%s and %s share the id %q", name, other, id)
		}
		seen[id] = name
	}
	if x, y := event(t, e, "message_personal"), event(t, e, "message_same_millisecond_in_another_conversation"); x.MessageKey == y.MessageKey {
		t.Errorf("messages of two conversations share the key %q", x.MessageKey)
	}
}

// Both bots of a tenant are sent a message that mentions them.
func TestBotsAreApart(t *testing.T) {
	t.Parallel()
	m := newMicrosoft(t, allKeys(t))
	other := m.credentials()
	other.Settings["app_id"] = "another-bot"
	r := load(t, "message_personal")
	a, err := open(t, m.credentials()).Extract(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := open(t, other).Extract(r)
	if err != nil {
		t.Fatal(err)
	}
	if a.Events[0].ID == b.Events[0].ID || a.Events[0].MessageKey == b.Events[0].MessageKey {
		t.Errorf("two bots share %q or %q", a.Events[0].ID, a.Events[0].MessageKey)
	}
}

// A client of Direct Line writes the channelData itself, with whatever tenant it likes.
func TestOtherChannelsOfTheBotAreIgnored(t *testing.T) {
	t.Parallel()
	e := open(t, newMicrosoft(t, allKeys(t)).credentials())
	if b := extract(t, e, "ignored_webchat_claims_a_tenant"); len(b.Events) != 0 || b.Reply != nil {
		t.Errorf("Extract = %+v; want nothing", b)
	}
}

func TestCardActionIsAnsweredAlike(t *testing.T) {
	t.Parallel()
	e := open(t, newMicrosoft(t, allKeys(t)).credentials())
	first, again := extract(t, e, "invoke_card_action").Reply, extract(t, e, "invoke_card_action").Reply
	if first == nil || again == nil || string(first.Body) != string(again.Body) {
		t.Fatalf("replies %+v and %+v; want equal ones", first, again)
	}
	var answer struct {
		StatusCode int
		Type       string
		Value      *string
	}
	if err := json.Unmarshal(first.Body, &answer); err != nil || first.ContentType != "application/json" {
		t.Fatalf("reply %s as %s: %v", first.Body, first.ContentType, err)
	}
	if answer.StatusCode != http.StatusOK || answer.Type != "application/vnd.microsoft.activity.message" || answer.Value == nil || *answer.Value != "" {
		t.Errorf("reply %s; want success and no words", first.Body)
	}
}

func TestFilesAreAttachments(t *testing.T) {
	t.Parallel()
	e := open(t, newMicrosoft(t, allKeys(t)).credentials())
	c, err := teams.New().Decode(event(t, e, "message_file"))
	if err != nil {
		t.Fatal(err)
	}
	want := []domain.Attachment{
		{URL: "https://download.example/once/1", Type: "application/vnd.microsoft.teams.file.download.info", Name: "chart.pdf"},
		{URL: "https://smba.trafficmanager.net/emea/v3/attachments/0/views/original", Type: "image/*"},
	}
	if len(c.Attachments) != 2 || c.Attachments[0] != want[0] || c.Attachments[1] != want[1] {
		t.Errorf("%+v; want %+v", c.Attachments, want)
	}
}

func TestUnfitSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for tells, s := range map[string]channels.Settings{
		"app_id: missing":           {},
		"app_id":                    {"app_id": " "},
		"openid_metadata: must be":  {"app_id": appID, "openid_metadata": "http://login.botframework.example/metadata"},
		"openid_metadata":           {"app_id": appID, "openid_metadata": "file:///etc/metadata"},
		"openid_metadata: not a UR": {"app_id": appID, "openid_metadata": "https://%zz"},
	} {
		if _, err := teams.New().Open(channels.Credentials{Settings: s}); err == nil || !strings.Contains(err.Error(), tells) {
			t.Errorf("Open with %v = %v; want an error that tells %q", s, err, tells)
		}
	}
	if _, err := teams.New().Open(channels.Credentials{Settings: channels.Settings{"app_id": appID}}); err != nil {
		t.Errorf("Open without openid_metadata: %v; want Microsoft's", err)
	}
}

// Such an installation is reached by the app-wide address alone.
func TestInstallationWithoutSettingsBelievesNobody(t *testing.T) {
	t.Parallel()
	e := open(t, channels.Credentials{Account: tenant, Settings: channels.Settings{"public_url": "https://hooks.example.com"}})
	for _, aud := range []any{appID, "", []string{}} {
		r := request("own", now)
		r.Header.Set("Authorization", "Bearer "+token("own", now, map[string]any{"aud": aud}))
		verify(t, e, r, domain.ErrUnauthenticated, "without app_id")
	}
}

func TestExampleNeedsNoNetwork(t *testing.T) {
	t.Parallel()
	c := teams.New().Example
	h, err := teams.New().Simulate(c, channels.Simulation{URL: "http://127.0.0.1/in/teams/demo", EventID: "1", Text: "hello", Now: now})
	if err != nil {
		t.Fatalf("Simulate: %v", err)
	}
	body := make([]byte, h.ContentLength)
	if _, err := h.Body.Read(body); err != nil {
		t.Fatal(err)
	}
	r := &channels.Request{Method: h.Method, URL: h.URL.String(), Header: h.Header, Body: body, Now: now}
	if err := open(t, c).Verify(r); err != nil {
		t.Errorf("Verify: %v", err)
	}
	public := channels.Credentials{Settings: channels.Settings{"app_id": c.Settings["app_id"], "openid_metadata": newMicrosoft(t, keySet(jwk("own", ""))).credentials().Settings["openid_metadata"]}}
	if err := open(t, public).Verify(r); err == nil {
		t.Error("a simulated request is believed by a server that does not trust the example")
	}
}
