package slack_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/domain"
)

func TestFixturesGiveTheirEvents(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		id, account, conversation, messageKey string
		kind                                  domain.Kind
		attempt                               int
	}{
		"events_message_channel":                     {"A0LARK7Q2XZ/Ev0TIDE4K7Q2", "T0KESTREL9", "C0PERCH3DW2", "message:C0PERCH3DW2:1789999998.104529", domain.MessageCreated, 0},
		"events_message_channel_retry1_http_timeout": {"A0LARK7Q2XZ/Ev0TIDE4K7Q2", "T0KESTREL9", "C0PERCH3DW2", "message:C0PERCH3DW2:1789999998.104529", domain.MessageCreated, 1},
		"events_message_channel_retry3_http_error":   {"A0LARK7Q2XZ/Ev0TIDE4K7Q2", "T0KESTREL9", "C0PERCH3DW2", "message:C0PERCH3DW2:1789999998.104529", domain.MessageCreated, 3},
		"events_app_mention":                         {"A0LARK7Q2XZ/Ev0FERRY1AAA", "T0KESTREL9", "C0PERCH3DW2", "", domain.Mention, 0},
		"events_message_twin_of_app_mention":         {"A0LARK7Q2XZ/Ev0FERRY2BBB", "T0KESTREL9", "C0PERCH3DW2", "message:C0PERCH3DW2:1789999999.482139", domain.MessageCreated, 0},
		"events_member_joined_channel":               {"A0LARK7Q2XZ/Ev0JOIN8Y9Z0", "T0KESTREL9", "C0PERCH3DW2", "", domain.Membership, 0},
		"events_message_bot_message":                 {"A0LARK7Q2XZ/Ev0GAUGE2G5H", "T0KESTREL9", "C0PERCH3DW2", "message:C0PERCH3DW2:1789999996.550049", domain.MessageCreated, 0},
		"events_message_changed_human_edit":          {"A0LARK7Q2XZ/Ev0NOON6J7K8", "T0KESTREL9", "C0PERCH3DW2", "", domain.MessageEdited, 0},
		"events_message_deleted":                     {"A0LARK7Q2XZ/Ev0GONE1P2Q3", "T0KESTREL9", "C0PERCH3DW2", "", domain.MessageDeleted, 0},
		"events_message_file_share_slack_connect":    {"A0LARK7Q2XZ/Ev0SOUND4U5V", "T0KESTREL9", "C0BRIDGE7TK", "message:C0BRIDGE7TK:1789999993.660000", domain.MessageCreated, 0},
		"events_message_grid_org_install":            {"A0LARK7Q2XZ/Ev0SHIFT3D4E", "E0FALCONRY1", "C0PERCH3DW2", "message:C0PERCH3DW2:1789999988.210007", domain.MessageCreated, 0},
		"events_message_im":                          {"A0LARK7Q2XZ/Ev0AWAKE7E3F", "T0KESTREL9", "D0NEST5QM1A", "message:D0NEST5QM1A:1789999997.000219", domain.MessageCreated, 0},
		"events_message_thread_reply":                {"A0LARK7Q2XZ/Ev0BERTH5C1D", "T0KESTREL9", "C0PERCH3DW2", "message:C0PERCH3DW2:1789999999.771003", domain.MessageCreated, 0},
		"events_message_utf8_raw":                    {"A0LARK7Q2XZ/Ev0UTF8K1L2M", "T0KESTREL9", "C0PERCH3DW2", "message:C0PERCH3DW2:1789999984.001200", domain.MessageCreated, 0},
		"events_reaction_added":                      {"A0LARK7Q2XZ/Ev0ANCHOR6W7X", "T0KESTREL9", "C0PERCH3DW2", "", domain.Reaction, 0},
		"events_unknown_inner_type":                  {"A0LARK7Q2XZ/Ev0LAMP8H9J0", "T0KESTREL9", "", "", domain.Other, 0},
		"lifecycle_app_uninstalled":                  {"A0LARK7Q2XZ/Ev0UNINST8T9U", "T0KESTREL9", "", "", domain.Other, 0},
		"lifecycle_team_access_revoked":              {"A0LARK7Q2XZ/Ev0ACCESS0V1W", "E0FALCONRY1", "", "", domain.Other, 0},
		"command_plain":                              {"", "T0KESTREL9", "C0PERCH3DW2", "", domain.Command, 0},
		"command_same_text_typed_twice":              {"", "T0KESTREL9", "C0PERCH3DW2", "", domain.Command, 0},
		"command_direct_message":                     {"", "T0KESTREL9", "D0NEST5QM1A", "", domain.Command, 0},
		"command_private_channel":                    {"", "T0KESTREL9", "G0HOLLOW6YN", "", domain.Command, 0},
		"interactive_block_actions_button":           {"", "T0KESTREL9", "C0PERCH3DW2", "", domain.Interaction, 0},
		"interactive_block_actions_second_click":     {"", "T0KESTREL9", "C0PERCH3DW2", "", domain.Interaction, 0},
		"interactive_legacy_dialog_submission":       {"", "T0KESTREL9", "C0PERCH3DW2", "", domain.Interaction, 0},
		"interactive_legacy_interactive_message":     {"", "T0KESTREL9", "C0PERCH3DW2", "", domain.Interaction, 0},
		"interactive_message_action":                 {"", "T0KESTREL9", "C0PERCH3DW2", "", domain.Interaction, 0},
		"interactive_shortcut_global":                {"", "T0KESTREL9", "U0FINCH8R2L", "", domain.Interaction, 0},
		"interactive_view_closed":                    {"", "T0KESTREL9", "V0BERTHFORM", "", domain.Interaction, 0},
		"interactive_view_submission":                {"", "T0KESTREL9", "V0BERTHFORM", "", domain.Interaction, 0},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := extract(t, load(t, name))
			if len(b.Events) != 1 || b.Reply != nil {
				t.Fatalf("%d events and reply %v; want one, and the empty acknowledgement", len(b.Events), b.Reply)
			}
			got := b.Events[0]
			if got.ID != want.id || got.Account != want.account || got.Kind != want.kind || got.MessageKey != want.messageKey ||
				got.Conversation != want.conversation || got.VendorAttempt != want.attempt || got.Digest.IsZero() {
				t.Errorf("got %q %q %s %q %q %d;\nwant %+v", got.ID, got.Account, got.Kind, got.MessageKey, got.Conversation, got.VendorAttempt, want)
			}
		})
	}
}

// BR-68: the challenge is echoed as it is, each time it comes, and never unsigned.
func TestChallengeIsEchoed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"lifecycle_url_verification":                      "kQ2mVh7sTz4Lw9Bn1Rx6Yd3Gp8Jc5Fa0",
		"lifecycle_url_verification_same_challenge_again": "kQ2mVh7sTz4Lw9Bn1Rx6Yd3Gp8Jc5Fa0",
	} {
		b := extract(t, load(t, name))
		if len(b.Events) != 0 || b.Reply == nil || b.Reply.ContentType != "text/plain" || string(b.Reply.Body) != want {
			t.Errorf("%s: %+v; want the challenge as text", name, b)
		}
	}
	b := extract(t, signed(`{"type":"url_verification","challenge":"\"<script>\u0026"}`))
	if b.Reply == nil || string(b.Reply.Body) != `"<script>&` || b.Reply.ContentType != "text/plain" {
		t.Errorf("%+v; want the challenge as text", b)
	}
	r := signed(`{"type":"url_verification","challenge":"x"}`)
	r.Header.Del("X-Slack-Signature")
	r.Header.Del("X-Slack-Request-Timestamp")
	if err := open(t, secret).Verify(r); !errors.Is(err, domain.ErrUnauthenticated) {
		t.Errorf("Verify unsigned = %v; want ErrUnauthenticated", err)
	}
}

func TestSSLCheckGivesNothing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lifecycle_ssl_check_signed", "lifecycle_ssl_check_unsigned"} {
		if b := extract(t, load(t, name)); len(b.Events) != 0 || b.Reply != nil {
			t.Errorf("%s: %+v; want nothing", name, b)
		}
	}
	if got := event(t, signed("command=%2Fferry&text=ssl_check%3D1&team_id=T1")); got.Kind != domain.Command {
		t.Errorf("a command that speaks of ssl_check is %s; want a command", got.Kind)
	}
}

func TestMenusAreAnsweredWithNoOptions(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"block_suggestion", "dialog_suggestion"} {
		b := extract(t, signed(`payload={"type":"`+kind+`","team":{"id":"T1"},"user":{"id":"U1"},"value":"no"}`))
		if len(b.Events) != 1 || b.Reply == nil || b.Reply.ContentType != "application/json" || string(b.Reply.Body) != `{"options":[]}` {
			t.Errorf("%s: %+v", kind, b)
		}
	}
}

func TestRateLimitIsUnnumbered(t *testing.T) {
	t.Parallel()
	got := event(t, signed(`{"token":"x","type":"app_rate_limited","team_id":"T1","minute_rate_limited":1518467820,"api_app_id":"A1"}`))
	if got.ID != "" || got.Kind != domain.Other || got.Account != "T1" {
		t.Errorf("got %q %s %q; want an unnumbered other of T1", got.ID, got.Kind, got.Account)
	}
}

// BR-08: a mention and its message are two events in either order.
func TestMentionAndItsMessageAreTwoEvents(t *testing.T) {
	t.Parallel()
	mention, message := event(t, load(t, "events_app_mention")), event(t, load(t, "events_message_twin_of_app_mention"))
	if mention.ID == message.ID || mention.MessageKey == message.MessageKey {
		t.Errorf("mention %q %q, message %q %q; want both to differ", mention.ID, mention.MessageKey, message.ID, message.MessageKey)
	}
}

// BR-09: one message under eleven event ids is one message, and its copies are no conflict.
func TestPhantomCopiesHaveOneMessageKeyAndDigest(t *testing.T) {
	t.Parallel()
	inner := `{"type":"message","user":"U1","text":"x","channel":"C1","ts":"1790000000.000100"}`
	a, b := event(t, signed(callback("Ev1", inner))), event(t, signed(callback("Ev2", inner)))
	if a.ID == b.ID || a.MessageKey != "message:C1:1790000000.000100" || a.MessageKey != b.MessageKey || a.Digest != b.Digest {
		t.Errorf("got %q %q %s and %q %q %s", a.ID, a.MessageKey, a.Digest, b.ID, b.MessageKey, b.Digest)
	}
	if c := event(t, signed(callback("Ev1", strings.Replace(inner, `"x"`, `"y"`, 1)))); c.Digest == a.Digest {
		t.Error("another text has the same digest")
	}
}

// BR-10: client_msg_id is no key.
func TestClientMessageIDDecidesNothing(t *testing.T) {
	t.Parallel()
	message := func(id, ts, client string) domain.Event {
		return event(t, signed(callback(id, `{"type":"message","subtype":"file_share",`+client+`"channel":"C1","ts":"`+ts+`"}`)))
	}
	a, b := message("Ev1", "1.000001", `"client_msg_id":"one",`), message("Ev2", "1.000002", `"client_msg_id":"one",`)
	c, d := message("Ev3", "1.000003", ""), message("Ev4", "1.000004", "")
	if a.MessageKey == b.MessageKey || c.MessageKey == d.MessageKey || c.MessageKey == "" {
		t.Errorf("message keys %q %q %q %q; want four", a.MessageKey, b.MessageKey, c.MessageKey, d.MessageKey)
	}
}

// BR-12: an app must not hear itself, but other bots.
func TestOwnMessagesAreNoMessagesToAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		inner string
		want  domain.Kind
	}{
		"own by app":         {`{"type":"message","bot_id":"B1","app_id":"` + app + `","user":"U9","channel":"C1","ts":"1.2"}`, domain.Other},
		"own by profile":     {`{"type":"message","bot_id":"B1","bot_profile":{"app_id":"` + app + `"},"channel":"C1","ts":"1.2"}`, domain.Other},
		"own by user":        {`{"type":"message","bot_id":"B1","user":"U0SELF","channel":"C1","ts":"1.2"}`, domain.Other},
		"own bot_message":    {`{"type":"message","subtype":"bot_message","bot_id":"B1","app_id":"` + app + `","channel":"C1","ts":"1.2"}`, domain.Other},
		"own edit":           {`{"type":"message","subtype":"message_changed","message":{"bot_id":"B1","app_id":"` + app + `"},"channel":"C1","ts":"1.2"}`, domain.Other},
		"another bot":        {`{"type":"message","bot_id":"B2","app_id":"A0OTHER","user":"U8","channel":"C1","ts":"1.2"}`, domain.MessageCreated},
		"another by profile": {`{"type":"message","bot_id":"B2","bot_profile":{"app_id":"A0OTHER"},"channel":"C1","ts":"1.2"}`, domain.MessageCreated},
		"a person":           {`{"type":"message","user":"U1","channel":"C1","ts":"1.2"}`, domain.MessageCreated},
	} {
		got := event(t, signed(callback("Ev1", tt.inner)))
		if got.Kind != tt.want || (got.MessageKey != "") != (tt.want == domain.MessageCreated) {
			t.Errorf("%s: %s with message key %q; want %s", name, got.Kind, got.MessageKey, tt.want)
		}
	}
	person := strings.Replace(callback("Ev1", `{"type":"message","user":"U0SELF","channel":"C1","ts":"1.2"}`), `"is_bot":true`, `"is_bot":false`, 1)
	if got := event(t, signed(person)); got.Kind != domain.MessageCreated {
		t.Errorf("a message of the person who installed the app is %s; want %s", got.Kind, domain.MessageCreated)
	}
}

func TestSubtypesHaveTheirKinds(t *testing.T) {
	t.Parallel()
	for subtype, want := range map[string]domain.Kind{
		"file_share": domain.MessageCreated, "thread_broadcast": domain.MessageCreated, "me_message": domain.MessageCreated, "bot_message": domain.MessageCreated,
		"message_changed": domain.MessageEdited, "message_deleted": domain.MessageDeleted, "message_replied": domain.Other,
		"channel_join": domain.Membership, "channel_leave": domain.Membership, "group_join": domain.Membership,
		"channel_topic": domain.Other, "not_yet_invented": domain.Other, "": domain.MessageCreated,
	} {
		got := event(t, signed(callback("Ev1", `{"type":"message","subtype":"`+subtype+`","user":"U1","channel":"C1","ts":"1.2"}`)))
		if got.Kind != want {
			t.Errorf("%s is %s; want %s", subtype, got.Kind, want)
		}
	}
	// Slack sends message_replied without its subtype.
	replied := event(t, signed(callback("Ev1", `{"type":"message","message":{"ts":"1.1","thread_ts":"1.1","reply_count":1},"channel":"C1","ts":"1.2"}`)))
	if replied.Kind != domain.Other {
		t.Errorf("message_replied without a subtype is %s; want %s", replied.Kind, domain.Other)
	}
}

// BR-70: only the authorization tells whose installation an event was sent to.
func TestAccountIsTheAuthorizations(t *testing.T) {
	t.Parallel()
	const inner = `"event":{"type":"message","team":"T2","user_team":"T2","source_team":"T2","channel":"C1","ts":"1.2"}`
	for name, tt := range map[string]struct{ rest, want string }{
		"author of another team":   {`"team_id":"T1","authorizations":[{"enterprise_id":null,"team_id":"T1","is_enterprise_install":false}]`, "T1"},
		"channel of another team":  {`"team_id":"T2","authorizations":[{"enterprise_id":null,"team_id":"T1","is_enterprise_install":false}]`, "T1"},
		"team of an organisation":  {`"team_id":"T1","enterprise_id":"E1","authorizations":[{"enterprise_id":"E1","team_id":"T1","is_enterprise_install":false}]`, "T1"},
		"org-wide":                 {`"team_id":"T1","enterprise_id":"E1","authorizations":[{"enterprise_id":"E1","team_id":"T1","is_enterprise_install":true}]`, "E1"},
		"org-wide without team":    {`"team_id":null,"enterprise_id":"E1","authorizations":[{"enterprise_id":"E1","team_id":null,"is_enterprise_install":true}]`, "E1"},
		"no authorizations":        {`"team_id":"T1"`, "T1"},
		"empty authorizations":     {`"team_id":"T1","enterprise_id":"E1","authorizations":[]`, "T1"},
		"authorizations null":      {`"team_id":"T1","authorizations":null`, "T1"},
		"organisation alone":       {`"team_id":null,"enterprise_id":"E1"`, "E1"},
		"org-wide of the envelope": {`"team_id":"T1","enterprise_id":"E1","is_enterprise_install":true`, "E1"},
		"none":                     {`"x":1`, ""},
	} {
		got := event(t, signed(`{"type":"event_callback","event_id":"Ev1","api_app_id":"A1",`+inner+`,`+tt.rest+`}`))
		if got.Account != tt.want {
			t.Errorf("%s: account %q; want %q", name, got.Account, tt.want)
		}
	}
}

func TestAccountOfFormsIsTheInstallations(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"command=%2Fx&team_id=T1&enterprise_id=E1&is_enterprise_install=false":                                                                    "T1",
		"command=%2Fx&team_id=T1&enterprise_id=E1&is_enterprise_install=true":                                                                     "E1",
		"command=%2Fx&enterprise_id=E1":                                                                                                           "E1",
		`payload={"type":"shortcut","team":{"id":"T1"},"enterprise":{"id":"E1"},"is_enterprise_install":false}`:                                   "T1",
		`payload={"type":"shortcut","team":{"id":"T1"},"enterprise":{"id":"E1"},"is_enterprise_install":true}`:                                    "E1",
		`payload={"type":"shortcut","team":{"id":"T1"},"enterprise":{"id":"E1"},"is_enterprise_install":"true"}`:                                  "E1",
		`payload={"type":"shortcut","team":null,"enterprise":{"id":"E1"},"user":{"id":"U1","team_id":"T2"}}`:                                      "E1",
		`payload={"type":"view_submission","team":{"id":"T2"},"view":{"id":"V1","app_installed_team_id":"T1"},"user":{"id":"U1","team_id":"T2"}}`: "T1",
	} {
		if got := event(t, signed(body)); got.Account != want {
			t.Errorf("%s: account %q; want %q", body, got.Account, want)
		}
	}
}

// Two apps of one workspace may be sent one event id.
func TestAppsAreApart(t *testing.T) {
	t.Parallel()
	body := callback("Ev1", `{"type":"app_mention","channel":"C1","ts":"1.2"}`)
	a, b := event(t, signed(body)), event(t, signed(strings.Replace(body, app, "A0WREN", 1)))
	if a.ID == b.ID {
		t.Errorf("both %q", a.ID)
	}
}

// BR-27: a numbered kind without its number has a key, and one that no number equals.
func TestEventWithoutIDHasAFallback(t *testing.T) {
	t.Parallel()
	without := func(inner string) string {
		return `{"type":"event_callback","api_app_id":"A1","team_id":"T1","event":` + inner + `}`
	}
	ids := map[string]string{}
	for _, body := range []string{
		string(load(t, "events_message_without_event_id").Body),
		without(`{"type":"message","channel":"C1","user":"U1","ts":"1.2"}`),
		without(`{"type":"message","channel":"C2","user":"U1","ts":"1.2"}`),
		without(`{"type":"message","channel":"C1","user":"U2","ts":"1.2"}`),
		without(`{"type":"message","channel":"C1","user":"U1","ts":"1.20"}`),
		without(`{"type":"app_mention","channel":"C1","user":"U1","ts":"1.2"}`),
		without(`{"type":"message","subtype":"message_changed","channel":"C1","user":"U1","ts":"1.2"}`),
		without(`{"type":"reaction_added","user":"U1","item":{"channel":"C1","ts":"1.1"},"event_ts":"1.2"}`),
		without(`{"type":"reaction_added","user":"U1","item":{"channel":"C1","ts":"1.0"},"event_ts":"1.2"}`),
		without(`{"type":"app_uninstalled"}`),
		without(`{"type":"tokens_revoked","tokens":{"oauth":["U1"],"bot":["U2"]}}`),
		`{"type":"event_callback","api_app_id":"A1","team_id":"T1","event_id":"","event":{"type":"x"}}`,
		`{"type":"event_callback","api_app_id":"A1","team_id":"T1","event_id":null,"event":{"type":"x"}}`,
		`{"type":"event_callback","api_app_id":"A1","team_id":"T1","event_id":{"a":1},"event":{"type":"x"}}`,
		`{"type":"a_kind_of_tomorrow"}`,
	} {
		a, b := event(t, signed(body)), event(t, signed(body))
		if a.ID != b.ID || !strings.HasPrefix(a.ID, "fallback:") || len(a.ID) < 20 {
			t.Errorf("%s:\nids %q and %q; want one fallback", body, a.ID, b.ID)
		}
		if other, taken := ids[a.ID]; taken {
			t.Errorf("%q is the id of both\n%s\n%s", a.ID, other, body)
		}
		ids[a.ID] = body
	}
	if got := event(t, signed(callback("fallback:1.2", `{"type":"message"}`))).ID; strings.HasPrefix(got, "fallback:") {
		t.Errorf("an event id of Slack's reads %q", got)
	}
}

// BR-77: names match in their exact case, and of equal names the first counts, in the key
// as in what the application is told.
func TestFirstOfEqualNamesCounts(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"case":    `{"Event_ID":"B","event_id":"A","EVENT_ID":"C","api_app_id":"A1","type":"event_callback","Type":"url_verification","event":{"Type":"x","type":"message","Text":"second","text":"first","channel":"C1","ts":"1.2"}}`,
		"twice":   `{"event_id":"A","event_id":"B","api_app_id":"A1","api_app_id":"A2","type":"event_callback","type":"x","event":{"type":"message","type":"y","text":"first","text":"second","channel":"C1","channel":"C2","ts":"1.2","ts":"1.3"},"event":{"text":"second"}}`,
		"nested":  `{"event_id":"A","api_app_id":"A1","type":"event_callback","event":{"type":"message","text":"first","channel":"C1","ts":"1.2"},"event":{"subtype":"message_deleted","channel":"C9","ts":"9.9"},"x":{"event_id":"B"}}`,
		"escaped": `{"\u0065vent_id":"A","event_id":"B","api_app_id":"A1","type":"event_callback","event":{"type":"message","\u0074ext":"first","text":"second","channel":"C1","ts":"1.2"}}`,
	} {
		got := event(t, signed(body))
		if got.ID != "A1/A" || got.MessageKey != "message:C1:1.2" {
			t.Errorf("%s: %q %q; want A1/A and message:C1:1.2", name, got.ID, got.MessageKey)
		}
		c, err := slack.New().Decode(got)
		if err != nil || c.Text != "first" || c.Conversation.ExternalID != "C1" {
			t.Errorf("%s: %+v, %v; want the first text of C1", name, c, err)
		}
	}
	got := event(t, signed(`{"EVENT_ID":"B","api_app_id":"A1","type":"event_callback","event":{"type":"x","event_ts":"1.2"}}`))
	if strings.Contains(got.ID, "B") {
		t.Errorf("EVENT_ID counted: %q", got.ID)
	}
}

// BR-57, BR-78: ids and timestamps are text, numbers are read digit for digit.
func TestIDsAreTakenDigitForDigit(t *testing.T) {
	t.Parallel()
	for ts, want := range map[string]string{
		`"1700000000.000100"`: "message:C1:1700000000.000100",
		`1700000000.000100`:   "message:C1:1700000000.000100",
		`9007199254740993`:    "message:C1:9007199254740993",
		`"1515449522000016"`:  "message:C1:1515449522000016",
	} {
		if got := event(t, signed(callback("Ev1", `{"type":"message","channel":"C1","ts":`+ts+`}`))); got.MessageKey != want {
			t.Errorf("ts %s: %q; want %q", ts, got.MessageKey, want)
		}
	}
	a := event(t, signed(strings.Replace(callback("Ev1", `{"type":"message"}`), `"Ev1"`, "9007199254740992", 1)))
	b := event(t, signed(strings.Replace(callback("Ev1", `{"type":"message"}`), `"Ev1"`, "9007199254740993", 1)))
	if a.ID == b.ID || b.ID != app+"/9007199254740993" {
		t.Errorf("ids %q and %q", a.ID, b.ID)
	}
}

// BR-79, BR-81: whatever stands in a payload, ids can be stored.
func TestIDsAreStorable(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{
		"NUL": `\u0000`, "lone surrogate": `\ud800`, "invalid UTF-8": "\xe9", "long": strings.Repeat("x", 300), "huge number": "1e131073",
	} {
		body := strings.ReplaceAll(`{"type":"event_callback","api_app_id":"A1","event_id":"Ev@","team_id":"T@","event":{"type":"message","channel":"C@","ts":"1@"}}`, "@", id)
		got := event(t, signed(body))
		for _, s := range []string{got.ID, got.Account, got.MessageKey, got.Conversation} {
			if s == "" || len(s) > domain.MaxID || !utf8.ValidString(s) || strings.Contains(s, "\x00") {
				t.Errorf("%s: %q can't be stored", name, s)
			}
		}
	}
}

func TestUnreadableBodiesAreTold(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"empty": "", "spaces": "  ", "null": "null", "number": "17", "string": `"x"`, "array": `[{"type":"event_callback"}]`,
		"empty object": "{}", "no type": `{"event_id":"Ev1"}`, "type of a number": `{"type":5}`, "type of null": `{"type":null}`,
		"cut": callback("Ev1", `{"type":"message"}`)[:40], "two values": `{"type":"a"}{"type":"b"}`, "trailing comma": `{"type":"a",}`,
		"BOM": "\xef\xbb\xbf" + callback("Ev1", `{"type":"message"}`), "UTF-16": "\xff\xfe{\x00}\x00", "control character": "{\"type\":\"a\x01\"}",
		"deep array":  `{"type":"x","event_id":"Ev1","a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`,
		"deep object": strings.Repeat(`{"a":`, 500_000), "challenge missing": `{"type":"url_verification"}`, "challenge of another type": `{"type":"url_verification","challenge":{}}`,
		"callback of nothing": `{"type":"event_callback"}`, "form of nothing": "a=b", "bad escape": "command=%zz", "payload cut": `payload={"type":`, "payload of text": "payload=x",
		"payload of an array": "payload=[]", "payload deep": "payload=" + strings.Repeat("[", 100_000), "NUL": "\x00",
	} {
		r := signed(body)
		e := open(t, secret)
		if err := e.Verify(r); err != nil {
			t.Errorf("%s: Verify = %v; want nil", name, err)
		}
		if b, err := e.Extract(r); !errors.Is(err, domain.ErrUnreadable) || len(b.Events) != 0 {
			t.Errorf("%s: Extract = %d events, %v; want ErrUnreadable", name, len(b.Events), err)
		} else if len(err.Error()) > 200 {
			t.Errorf("%s: the error tells the body", name)
		}
	}
}

func TestWideBodiesAreReadable(t *testing.T) {
	t.Parallel()
	wide := callback("Ev1", `{"type":"message","text":"\"[[[{{{","channel":"C1","ts":"1.2","blocks":[`+strings.Repeat(`[{}],`, 2000)+`{}]}`)
	if got := event(t, signed(wide)); got.MessageKey != "message:C1:1.2" {
		t.Errorf("message key %q", got.MessageKey)
	}
}

func TestPlausibleOddEventsAreEvents(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body, id, conversation string
		kind                   domain.Kind
	}{
		"event of text":           {`{"type":"event_callback","api_app_id":"A1","event_id":"Ev1","event":"x{\"channel\":\"C1\"}"}`, "A1/Ev1", "", domain.Other},
		"no event":                {`{"type":"event_callback","api_app_id":"A1","event_id":"Ev1"}`, "A1/Ev1", "", domain.Other},
		"no app":                  {`{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}`, "/Ev1", "", domain.MessageCreated},
		"unknown kind with an id": {`{"type":"tomorrow","api_app_id":"A1","event_id":"Ev1"}`, "A1/Ev1", "", domain.Other},
		"channel as an object":    {callback("Ev1", `{"type":"channel_created","channel":{"id":"C1","name":"n"}}`), app + "/Ev1", "C1", domain.Other},
		"channel_id":              {callback("Ev1", `{"type":"file_shared","channel_id":"C1","file_id":"F1"}`), app + "/Ev1", "C1", domain.Other},
		"assistant thread":        {callback("Ev1", `{"type":"assistant_thread_started","assistant_thread":{"user_id":"U1","channel_id":"D1","thread_ts":"1.2"}}`), app + "/Ev1", "D1", domain.Other},
		"user as an object":       {callback("Ev1", `{"type":"team_join","user":{"id":"U1","real_name":"Ida"}}`), app + "/Ev1", "", domain.Membership},
		"reaction to a file":      {callback("Ev1", `{"type":"reaction_added","user":"U1","item":{"type":"file","file":"F1"},"event_ts":"1.2"}`), app + "/Ev1", "", domain.Reaction},
		"item of text":            {callback("Ev1", `{"type":"reaction_removed","item":"x"}`), app + "/Ev1", "", domain.Reaction},
	} {
		got := event(t, signed(tt.body))
		if got.ID != tt.id || got.Conversation != tt.conversation || got.Kind != tt.kind {
			t.Errorf("%s: %q %q %s; want %q %q %s", name, got.ID, got.Conversation, got.Kind, tt.id, tt.conversation, tt.kind)
		}
		if _, err := slack.New().Decode(got); err != nil {
			t.Errorf("%s: Decode: %v", name, err)
		}
	}
}

func TestHeadersDecideNothing(t *testing.T) {
	t.Parallel()
	want := event(t, load(t, "events_message_channel"))
	for key, values := range map[string][]string{
		"Content-Type":         {"application/json; charset=utf-8", "application/x-www-form-urlencoded", "text/plain", ""},
		"X-Slack-Retry-Num":    {"1", "3", "27", "-1", "x", "99999999999999999999", ""},
		"X-Slack-Retry-Reason": {"http_timeout", "of another day"},
		"X-Slack-No-Retry":     {"1"},
	} {
		for _, value := range values {
			r := load(t, "events_message_channel")
			r.Header.Set(key, value)
			got := event(t, r)
			if got.ID != want.ID || got.MessageKey != want.MessageKey || got.Digest != want.Digest || got.Kind != want.Kind || got.Payload.MediaType != want.Payload.MediaType {
				t.Errorf("%s: %q changed the event", key, value)
			}
			if got.VendorAttempt < 0 {
				t.Errorf("%s: %q gives attempt %d", key, value, got.VendorAttempt)
			}
		}
	}
}
