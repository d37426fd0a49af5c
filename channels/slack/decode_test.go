package slack_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/admitone/admitone/channels/slack"
	"github.com/admitone/admitone/domain"
)

func TestFixturesGiveTheirContent(t *testing.T) {
	t.Parallel()
	type want struct {
		channel, thread, sender, name, text string
		at                                  string
	}
	for name, want := range map[string]want{
		"events_message_channel":                  {"C0PERCH3DW2", "1789999998.104529", "U0FINCH8R2L", "", "The tide table for pier nine is wrong again.", "2026-09-21T14:13:18.104529Z"},
		"events_message_thread_reply":             {"C0PERCH3DW2", "1789999998.104529", "U0FINCH8R2L", "", "Second berth, please.", "2026-09-21T14:13:19.771003Z"},
		"events_app_mention":                      {"C0PERCH3DW2", "1789999999.482139", "U0HERON4V6P", "", "<@U0LARKB0T55> book the ferry for two", "2026-09-21T14:13:19.482139Z"},
		"events_message_bot_message":              {"C0PERCH3DW2", "1789999996.550049", "B0GAUGE9H4R", "harbour-gauge", "Gauge 4 reads 2.31 m", "2026-09-21T14:13:16.550049Z"},
		"events_message_changed_human_edit":       {"C0PERCH3DW2", "1789999900.000400", "U0FINCH8R2L", "", "Meeting at one", "2026-09-21T14:13:15.0088Z"},
		"events_message_deleted":                  {"C0PERCH3DW2", "1789999900.000400", "U0FINCH8R2L", "", "", "2026-09-21T14:13:14.0091Z"},
		"events_message_file_share_slack_connect": {"C0BRIDGE7TK", "1789999993.660000", "U0FINCH8R2L", "", "soundings", "2026-09-21T14:13:13.66Z"},
		"events_message_utf8_raw":                 {"C0PERCH3DW2", "1789999984.001200", "U0FINCH8R2L", "", "naïve café — 港口 🚢 <&>", "2026-09-21T14:13:04.0012Z"},
		"events_reaction_added":                   {"C0PERCH3DW2", "", "U0HERON4V6P", "", "", "2026-09-21T14:13:19.0002Z"},
		"events_member_joined_channel":            {"C0PERCH3DW2", "", "U0HERON4V6P", "", "", "2026-09-21T14:13:11.0003Z"},
		"lifecycle_app_uninstalled":               {"", "", "", "", "", "2026-09-21T14:13:01Z"},
		"command_plain":                           {"C0PERCH3DW2", "", "U0FINCH8R2L", "finch", "/ferry book 2 north", ""},
		"command_empty_text":                      {"C0PERCH3DW2", "", "U0FINCH8R2L", "finch", "/tide", ""},
		"command_percent20_encoding":              {"C0PERCH3DW2", "", "U0FINCH8R2L", "finch", "/ferry book 4 south quay", ""},
		"command_unicode_and_mention":             {"C0PERCH3DW2", "", "U0FINCH8R2L", "finch", "/ferry ask <@U0HERON4V6P|heron> für 港口 🚢 & more + 100%", ""},
		"interactive_block_actions_button":        {"C0PERCH3DW2", "1789999950.000700", "U0FINCH8R2L", "finch", "seat-2", "2026-09-21T14:13:19.120001Z"},
		"interactive_block_actions_second_click":  {"C0PERCH3DW2", "1789999950.000700", "U0FINCH8R2L", "finch", "seat-2", "2026-09-21T14:13:19.640002Z"},
		"interactive_legacy_interactive_message":  {"C0PERCH3DW2", "1789999940.000800", "U0FINCH8R2L", "finch", "yes", "2026-09-21T14:13:19.400005Z"},
		"interactive_message_action":              {"C0PERCH3DW2", "1789999998.104529", "U0FINCH8R2L", "finch", "", "2026-09-21T14:13:19.300004Z"},
		"interactive_shortcut_global":             {"U0FINCH8R2L", "", "U0FINCH8R2L", "finch", "", "2026-09-21T14:13:19.200003Z"},
		"interactive_view_submission":             {"V0BERTHFORM", "", "U0FINCH8R2L", "finch", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := load(t, name)
			ev := event(t, r)
			c, err := slack.New().Decode(ev)
			if err != nil {
				t.Fatalf("Decode: %v", err)
			}
			at := ""
			if !c.Time.IsZero() {
				at = c.Time.Format(time.RFC3339Nano)
			}
			got := struct{ channel, thread, sender, name, text, at string }{c.Conversation.ExternalID, c.Conversation.Thread, c.Sender.ID, c.Sender.Name, c.Text, at}
			if got != struct{ channel, thread, sender, name, text, at string }(want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if c.Conversation.ExternalID != ev.Conversation {
				t.Errorf("the content stands in %q, the event in %q", c.Conversation.ExternalID, ev.Conversation)
			}
			if strings.HasPrefix(name, "events_") && string(c.Raw) != string(r.Body) {
				t.Error("raw is not the body")
			}
		})
	}
}

func TestFormsAreRawAsObjects(t *testing.T) {
	t.Parallel()
	var command map[string]any
	c := content(t, signed("command=%2Fferry&text=a&text=b&team_id=T1&empty="))
	if err := json.Unmarshal(c.Raw, &command); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"command": "/ferry", "text": []any{"a", "b"}, "team_id": "T1", "empty": ""}
	if !reflect.DeepEqual(command, want) {
		t.Errorf("raw %v; want %v", command, want)
	}
	var form map[string]string
	c = content(t, signed("payload=%7B%22type%22%3A%22shortcut%22%2C%22n%22%3A1.50%7D"))
	if err := json.Unmarshal(c.Raw, &form); err != nil {
		t.Fatal(err)
	}
	if len(form) != 1 || form["payload"] != `{"type":"shortcut","n":1.50}` {
		t.Errorf("raw %v; want the payload whole", form)
	}
}

func TestFilesAreAttachments(t *testing.T) {
	t.Parallel()
	c := content(t, signed(callback("Ev1", `{"type":"message","subtype":"file_share","channel":"C1","ts":"1.2","files":[
		{"id":"F1","name":"tide.pdf","mimetype":"application/pdf","size":40213,"url_private":"https://files.slack.example/F1"},
		{"id":"F2","title":"chart","size":9223372036854775808}, {"id":"F3","file_access":"check_file_info","size":-1}, "odd", null]}`)))
	want := []domain.Attachment{
		{URL: "https://files.slack.example/F1", Type: "application/pdf", Name: "tide.pdf", Size: 40213},
		{Name: "chart"},
		{Name: "F3"},
	}
	if !reflect.DeepEqual(c.Attachments, want) {
		t.Errorf("got %+v; want %+v", c.Attachments, want)
	}
}

func TestSenderIsWhoCausedIt(t *testing.T) {
	t.Parallel()
	for inner, want := range map[string]domain.Sender{
		`{"type":"message","user":"U1","user_profile":{"display_name":"Ida","real_name":"Ida B"}}`:                     {ID: "U1", Name: "Ida"},
		`{"type":"message","bot_id":"B1","bot_profile":{"name":"gauge"}}`:                                              {ID: "B1", Name: "gauge"},
		`{"type":"message","subtype":"message_changed","message":{"user":"U1","edited":{"user":"U2"}}}`:                {ID: "U2"},
		`{"type":"message","subtype":"message_changed","message":{"user":"U1","username":"a","edited":{"user":"U1"}}}`: {ID: "U1", Name: "a"},
		`{"type":"message","user":"U1","edited":{"user":"U2"}}`:                                                        {ID: "U1"},
		`{"type":"team_join","user":{"id":"U1","name":"ida","real_name":"Ida B"}}`:                                     {ID: "U1", Name: "Ida B"},
		`{"type":"file_shared","user_id":"U1"}`:                                                                        {ID: "U1"},
		`{"type":"assistant_thread_started","assistant_thread":{"user_id":"U1"}}`:                                      {ID: "U1"},
		`{"type":"x"}`: {},
	} {
		if got := content(t, signed(callback("Ev1", inner))).Sender; got != want {
			t.Errorf("%s: %+v; want %+v", inner, got, want)
		}
	}
}

func TestInteractionTextIsTheChosenValue(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"type":"block_actions","actions":[{"value":"a"},{"value":"b"}]}`:                                     "a",
		`{"type":"block_actions","actions":[{"selected_option":{"value":"o"}}]}`:                               "o",
		`{"type":"interactive_message","actions":[{"name":"n","selected_options":[{"value":"l"}]}]}`:           "l",
		`{"type":"block_suggestion","value":"ty"}`:                                                             "ty",
		`{"type":"message_action","message":{"text":"of another"}}`:                                            "",
		`{"type":"block_actions","actions":[]}`:                                                                "",
		`{"type":"block_actions","actions":"x"}`:                                                               "",
		`{"type":"view_submission","view":{"id":"V1","state":{"values":{"a":{"b":{"value":"one of many"}}}}}}`: "",
	} {
		if got := content(t, signed("payload="+payload)).Text; got != want {
			t.Errorf("%s: %q; want %q", payload, got, want)
		}
	}
}

func TestTimesAreSlacks(t *testing.T) {
	t.Parallel()
	for ts, want := range map[string]string{
		`"1790000000.000100"`:     "2026-09-21T14:13:20.0001Z",
		`"1790000000.1"`:          "2026-09-21T14:13:20.1Z",
		`"1790000000"`:            "2026-09-21T14:13:20Z",
		`"1515449522000016"`:      "2018-01-08T22:12:02.000016Z",
		`"1790000000.0001001234"`: "2026-09-21T14:13:20.0001Z",
		`"1790000000.xyz"`:        "2026-09-21T14:13:20Z",
		`1790000000.000100`:       "2026-09-21T14:13:20.0001Z",
		// What can't be read gives way to event_time.
		`"x"`: "2026-09-21T14:13:19Z", `"-5.0"`: "2026-09-21T14:13:19Z", `"999999999999.0"`: "2026-09-21T14:13:19Z", `{}`: "2026-09-21T14:13:19Z", `1e20`: "2026-09-21T14:13:19Z",
	} {
		c := content(t, signed(callback("Ev1", `{"type":"message","event_ts":`+ts+`}`)))
		if got := c.Time.Format(time.RFC3339Nano); got != want {
			t.Errorf("%s: %s; want %s", ts, got, want)
		}
	}
}

// BR-79, BR-81: hostile content still gives content that can be told as JSON.
func TestHostileContentIsValidJSON(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"invalid UTF-8":       callback("Ev1", "{\"type\":\"message\",\"text\":\"caf\xe9\",\"channel\":\"C\xe9\",\"ts\":\"1.2\",\"user\":\"U\xff\",\"thread_ts\":\"\xc3\",\"files\":[{\"name\":\"\xe9\"}]}"),
		"NUL":                 callback("Ev1", `{"type":"message","text":"a\u0000b","channel":"C\u0000","ts":"1.2"}`),
		"lone surrogate":      callback("Ev1", `{"type":"message","text":"\ud83d","channel":"\udea2","ts":"1.2"}`),
		"huge numbers":        callback("Ev1", `{"type":"message","text":1e131073,"a":1e999999,"b":-0,"c":`+strings.Repeat("9", 200_000)+`,"channel":"C1","ts":"1.2"}`),
		"command of latin-1":  "command=%2Fferry&text=caf%E9%00&channel_id=%E9&user_id=%FF",
		"interaction, broken": "payload=%7B%22type%22%3A%22%E9%22%2C%22user%22%3A%7B%22name%22%3A%22%E9%22%7D%7D",
	} {
		c := content(t, signed(body))
		if !json.Valid(c.Raw) || !utf8.Valid(c.Raw) {
			t.Errorf("%s: raw is no JSON", name)
		}
		for _, s := range []string{c.Text, c.Sender.ID, c.Sender.Name, c.Conversation.ExternalID, c.Conversation.Thread} {
			if !utf8.ValidString(s) {
				t.Errorf("%s: %q is not UTF-8", name, s)
			}
		}
		if _, err := json.Marshal(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := content(t, signed(callback("Ev1", `{"type":"x","n":9007199254740993,"f":1.50,"e":1E400}`)))
	if !strings.Contains(string(c.Raw), `"n":9007199254740993,"f":1.50,"e":1E400`) {
		t.Errorf("raw changed the numbers: %s", c.Raw)
	}
}

func TestUnknownPayloadsAreUnreadable(t *testing.T) {
	t.Parallel()
	for _, p := range []domain.Payload{
		{},
		{MediaType: "application/json"},
		{MediaType: "application/json", Body: []byte("[]")},
		{MediaType: "text/plain", Body: []byte("{}")},
		{MediaType: "application/x-www-form-urlencoded", Body: []byte("payload=x")},
		{MediaType: "application/x-www-form-urlencoded", Body: []byte("%zz")},
	} {
		if _, err := slack.New().Decode(domain.Event{Payload: p}); !errors.Is(err, domain.ErrUnreadable) {
			t.Errorf("Decode(%q %q) = %v; want ErrUnreadable", p.MediaType, p.Body, err)
		}
	}
}
