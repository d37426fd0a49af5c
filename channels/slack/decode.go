package slack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/domain"
)

func decode(e domain.Event) (domain.Content, error) {
	switch e.Payload.MediaType {
	case mediaJSON:
		return decodeJSON(e.Payload.Body)
	case mediaForm:
		return decodeForm(e.Payload.Body)
	}
	return domain.Content{}, fmt.Errorf("%w: media type %q is none of Slack's", domain.ErrUnreadable, e.Payload.MediaType)
}

func decodeJSON(body []byte) (domain.Content, error) {
	root, err := parse(string(body))
	if err != nil {
		return domain.Content{}, err
	}
	var env envelope
	env.read(root)
	var event, within inner
	event.read(env.event)
	// An edit and a deletion tell of the message within; their own ts is that of the event.
	message, subtype := &event, text(event.subtype)
	switch subtype {
	case "message_changed":
		message = &within
		within.read(event.message)
	case "message_deleted":
		message = &within
		within.read(event.previous)
	}
	c := domain.Content{
		Conversation: domain.Conversation{
			ExternalID: domain.StorableID(event.conversation()),
			Thread:     clean(thread(&event, message)),
		},
		Sender: sender(&event, message),
		Time:   eventTime(&env, &event),
		Raw:    validJSON(body),
	}
	if subtype != "message_deleted" {
		c.Text = clean(text(message.text))
		c.Attachments = files(message.files)
	}
	return c, nil
}

// thread returns the ts of the message that the thread of message begins with: its own if
// it has not been replied to. It is empty for events that are about no message.
func thread(event, message *inner) string {
	switch text(event.kind) {
	case "message", "app_mention":
	default:
		return text(field(event.assistant, "thread_ts"))
	}
	return firstText(message.threadTS, message.ts)
}

// sender returns who caused event. Of a bot without a user the bot is named; of an edit the
// editor, if Slack tells, else the author.
func sender(event, message *inner) domain.Sender {
	user := message.user
	if user.IsObject() { // team_join and its kin bring the whole user
		return domain.Sender{ID: clean(text(field(user, "id"))), Name: clean(firstText(field(user, "real_name"), field(user, "name")))}
	}
	if editor := text(field(message.edited, "user")); editor != "" && text(event.subtype) == "message_changed" {
		if editor != text(user) {
			return domain.Sender{ID: clean(editor)}
		}
	}
	return domain.Sender{
		ID: clean(firstText(user, message.bot, field(event.assistant, "user_id"), event.userID)),
		Name: clean(firstText(message.username, field(message.profile, "display_name"), field(message.profile, "real_name"),
			field(message.botProfile, "name"))),
	}
}

// files returns the files in list. Their URLs need the app's token; a file of a shared
// channel (file_access check_file_info) has none, and only files.info tells more of it.
func files(list gjson.Result) []domain.Attachment {
	if !list.IsArray() {
		return nil
	}
	var attachments []domain.Attachment
	list.ForEach(func(_, file gjson.Result) bool {
		if file.IsObject() {
			attachments = append(attachments, domain.Attachment{
				URL:  clean(text(field(file, "url_private"))),
				Type: clean(text(field(file, "mimetype"))),
				Name: clean(firstText(field(file, "name"), field(file, "title"), field(file, "id"))),
				Size: size(field(file, "size")),
			})
		}
		return true
	})
	return attachments
}

func size(v gjson.Result) int64 {
	n, err := strconv.ParseInt(text(v), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// eventTime returns when the event took place. A message without event_ts has a ts; what
// has neither was dispatched at event_time, in whole seconds.
func eventTime(env *envelope, event *inner) time.Time {
	for _, v := range []*gjson.Result{&event.eventTS, &event.ts, &env.time, &env.limitedAt} {
		if t := parseTS(text(*v)); !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// parseTS reads a timestamp of Slack's: seconds, and after the dot microseconds. Slack's
// page on app_mention shows one without the dot. The zero time stands for what is neither,
// and for what RFC 3339 can't express.
func parseTS(ts string) time.Time {
	const lastSecond, micros = 253402300799, 6 // 9999-12-31T23:59:59Z
	whole, fraction, dot := strings.Cut(ts, ".")
	if !dot && len(ts) == 10+micros {
		whole, fraction = ts[:10], ts[10:]
	}
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds <= 0 || seconds > lastSecond {
		return time.Time{}
	}
	n, err := strconv.Atoi((fraction + "000000")[:micros])
	if err != nil || n < 0 {
		n = 0
	}
	return time.Unix(seconds, int64(n)*int64(time.Microsecond)).UTC()
}

func decodeForm(body []byte) (domain.Content, error) {
	form, err := parseForm(body)
	if err != nil {
		return domain.Content{}, err
	}
	raw, err := rawForm(form)
	if err != nil {
		return domain.Content{}, err
	}
	if form.Has("command") {
		line := form.Get("command")
		if words := form.Get("text"); words != "" {
			line += " " + words
		}
		return domain.Content{
			Conversation: domain.Conversation{ExternalID: domain.StorableID(form.Get("channel_id")), Thread: clean(form.Get("thread_ts"))},
			Sender:       domain.Sender{ID: clean(form.Get("user_id")), Name: clean(form.Get("user_name"))},
			Text:         clean(line),
			Raw:          raw,
		}, nil
	}
	payload, err := parse(form.Get("payload"))
	if err != nil {
		return domain.Content{}, err
	}
	return interaction(payload, raw), nil
}

// interaction returns the content of an interaction. Its text is the value that the user
// chose or typed; a form of several fields has none, and raw holds them.
func interaction(payload gjson.Result, raw json.RawMessage) domain.Content {
	action := element(field(payload, "actions"))
	user, container, message := field(payload, "user"), field(payload, "container"), field(payload, "message")
	return domain.Content{
		Conversation: domain.Conversation{
			ExternalID: domain.StorableID(interactionPlace(payload)),
			Thread: clean(firstText(field(container, "thread_ts"), field(message, "thread_ts"),
				field(container, "message_ts"), field(payload, "message_ts"))),
		},
		Sender: domain.Sender{ID: clean(text(field(user, "id"))), Name: clean(firstText(field(user, "name"), field(user, "username")))},
		Text: clean(firstText(field(action, "value"), field(field(action, "selected_option"), "value"),
			field(element(field(action, "selected_options")), "value"), field(payload, "value"))),
		Time: parseTS(firstText(field(action, "action_ts"), field(payload, "action_ts"))),
		Raw:  raw,
	}
}

// firstText returns the first of vs that has a text.
func firstText(vs ...gjson.Result) string {
	for _, v := range vs {
		if s := text(v); s != "" {
			return s
		}
	}
	return ""
}

// rawForm returns form as a JSON object of strings, or of lists where a name stands more than once.
func rawForm(form url.Values) (json.RawMessage, error) {
	raw := make(map[string]any, len(form))
	for name, values := range form {
		if len(values) == 1 {
			raw[name] = values[0]
		} else {
			raw[name] = values
		}
	}
	b, err := json.Marshal(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", domain.ErrUnreadable, err)
	}
	return b, nil
}

// validJSON returns body, which is JSON but for bytes that are not UTF-8. These can stand
// in strings only, so replacing them keeps it JSON.
func validJSON(body []byte) json.RawMessage {
	if utf8.Valid(body) {
		return body
	}
	return bytes.ToValidUTF8(body, []byte(string(utf8.RuneError)))
}

// clean returns s as UTF-8.
func clean(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }
