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

	"github.com/admitone/admitone/channels/payload"
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
	message, subtype := &event, payload.Text(event.subtype)
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
			Thread:     payload.UTF8(thread(&event, message)),
		},
		Sender: sender(&event, message),
		Time:   eventTime(&env, &event),
		Raw:    validJSON(body),
	}
	if subtype != "message_deleted" {
		c.Text = payload.UTF8(payload.Text(message.text))
		c.Attachments = files(message.files)
	}
	return c, nil
}

// thread returns the ts of the message that the thread of message begins with: its own if
// it has not been replied to. It is empty for events that are about no message.
func thread(event, message *inner) string {
	switch payload.Text(event.kind) {
	case "message", "app_mention":
	default:
		return payload.TextAt(event.assistant, "thread_ts")
	}
	return firstText(message.threadTS, message.ts)
}

// sender returns who caused event. Of a bot without a user the bot is named; of an edit the
// editor, if Slack tells, else the author.
func sender(event, message *inner) domain.Sender {
	user := message.user
	if user.IsObject() { // team_join and its kin bring the whole user
		return domain.Sender{ID: payload.UTF8(payload.TextAt(user, "id")), Name: payload.UTF8(firstText(payload.Member(user, "real_name"), payload.Member(user, "name")))}
	}
	if editor := payload.TextAt(message.edited, "user"); editor != "" && payload.Text(event.subtype) == "message_changed" {
		if editor != payload.Text(user) {
			return domain.Sender{ID: payload.UTF8(editor)}
		}
	}
	return domain.Sender{
		ID: payload.UTF8(firstText(user, message.bot, payload.Member(event.assistant, "user_id"), event.userID)),
		Name: payload.UTF8(firstText(message.username, payload.Member(message.profile, "display_name"), payload.Member(message.profile, "real_name"),
			payload.Member(message.botProfile, "name"))),
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
				URL:  payload.UTF8(payload.TextAt(file, "url_private")),
				Type: payload.UTF8(payload.TextAt(file, "mimetype")),
				Name: payload.UTF8(firstText(payload.Member(file, "name"), payload.Member(file, "title"), payload.Member(file, "id"))),
				Size: size(payload.Member(file, "size")),
			})
		}
		return true
	})
	return attachments
}

func size(v gjson.Result) int64 {
	n, err := strconv.ParseInt(payload.Text(v), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// eventTime returns when the event took place. A message without event_ts has a ts; what
// has neither was dispatched at event_time, in whole seconds.
func eventTime(env *envelope, event *inner) time.Time {
	for _, v := range []*gjson.Result{&event.eventTS, &event.ts, &env.time, &env.limitedAt} {
		if t := parseTS(payload.Text(*v)); !t.IsZero() {
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
			Conversation: domain.Conversation{ExternalID: domain.StorableID(form.Get("channel_id")), Thread: payload.UTF8(form.Get("thread_ts"))},
			Sender:       domain.Sender{ID: payload.UTF8(form.Get("user_id")), Name: payload.UTF8(form.Get("user_name"))},
			Text:         payload.UTF8(line),
			Raw:          raw,
		}, nil
	}
	act, err := parse(form.Get("payload"))
	if err != nil {
		return domain.Content{}, err
	}
	return interaction(act, raw), nil
}

// interaction returns the content of an interaction. Its text is the value that the user
// chose or typed; a form of several fields has none, and raw holds them.
func interaction(act gjson.Result, raw json.RawMessage) domain.Content {
	action := element(payload.Member(act, "actions"))
	user := payload.Member(act, "user")
	return domain.Content{
		Conversation: domain.Conversation{
			ExternalID: domain.StorableID(interactionPlace(act)),
			Thread: payload.UTF8(firstText(payload.Member(act, "container", "thread_ts"), payload.Member(act, "message", "thread_ts"),
				payload.Member(act, "container", "message_ts"), payload.Member(act, "message_ts"))),
		},
		Sender: domain.Sender{ID: payload.UTF8(payload.TextAt(user, "id")), Name: payload.UTF8(payload.FirstText(user, "name", "username"))},
		Text: payload.UTF8(firstText(payload.Member(action, "value"), payload.Member(action, "selected_option", "value"),
			payload.Member(element(payload.Member(action, "selected_options")), "value"), payload.Member(act, "value"))),
		Time: parseTS(firstText(payload.Member(action, "action_ts"), payload.Member(act, "action_ts"))),
		Raw:  raw,
	}
}

// firstText returns the first of vs that has a text.
func firstText(vs ...gjson.Result) string {
	for _, v := range vs {
		if s := payload.Text(v); s != "" {
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
