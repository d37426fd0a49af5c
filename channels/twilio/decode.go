package twilio

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

// replacement stands in content for bytes that are not UTF-8.
const replacement = "\uFFFD"

// decode reads the content of e from its payload. Text is as the person wrote it, blanks and
// all, but for bytes that are not UTF-8.
func decode(e domain.Event) (domain.Content, error) {
	switch e.Payload.MediaType {
	case formType:
		return decodeForm(e.Payload.Body)
	case jsonType:
		return decodeStream(e.Payload.Body)
	}
	return domain.Content{}, unreadable("a payload of media type " + strconv.Quote(e.Payload.MediaType))
}

func decodeForm(body []byte) (domain.Content, error) {
	ps := parse(nil, body)
	if len(ps) == 0 {
		return domain.Content{}, unreadable("a form without parameters")
	}
	values := make(map[string][]string, len(ps))
	for _, p := range ps {
		name := strings.ToValidUTF8(p.name, replacement)
		values[name] = append(values[name], strings.ToValidUTF8(p.value, replacement))
	}
	first := func(name string) string {
		if v := values[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	raw, err := rawForm(values)
	if err != nil {
		return domain.Content{}, err
	}
	m := ps.message()
	c := domain.Content{
		Conversation: domain.Conversation{ExternalID: m.conversation(m.kind())},
		Sender:       domain.Sender{ID: first("From"), Name: first("ProfileName")},
		Text:         first("Body"),
		Raw:          raw,
	}
	for _, n := range media(values) {
		c.Attachments = append(c.Attachments, domain.Attachment{URL: first("MediaUrl" + n), Type: first("MediaContentType" + n)})
	}
	return c, nil
}

// media returns the numbers of the media in values, in their order. NumMedia tells how many
// there are, but what is there counts.
func media(values map[string][]string) []string {
	var numbers []string
	for name, urls := range values {
		if n, ok := strings.CutPrefix(name, "MediaUrl"); ok && n != "" && urls[0] != "" && strings.Trim(n, "0123456789") == "" {
			numbers = append(numbers, n)
		}
	}
	slices.SortFunc(numbers, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	return numbers
}

// rawForm returns values as an object of strings, or of lists of strings for repeated names.
func rawForm(values map[string][]string) (json.RawMessage, error) {
	object := make(map[string]any, len(values))
	for name, v := range values {
		if len(v) == 1 {
			object[name] = v[0]
		} else {
			object[name] = v
		}
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("twilio: form as JSON: %w", err)
	}
	return raw, nil
}

func decodeStream(body []byte) (domain.Content, error) {
	if !json.Valid(body) {
		return domain.Content{}, unreadable("a payload that is not JSON")
	}
	item := gjson.ParseBytes(body)
	data, m, k := item.Get("data"), streamMessage(item), streamKind(item)
	raw := body
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte(replacement))
	}
	return domain.Content{
		Conversation: domain.Conversation{ExternalID: m.conversation(k)},
		Sender:       domain.Sender{ID: strings.ToValidUTF8(m.from, replacement)},
		Text:         strings.ToValidUTF8(payload.Text(data.Get("body")), replacement),
		Time:         firstTime(data.Get("timestamp"), item.Get("time")),
		Raw:          raw,
	}, nil
}

// firstTime returns the first of values that is a time, zero if none is.
func firstTime(values ...gjson.Result) time.Time {
	for _, v := range values {
		if t, err := time.Parse(time.RFC3339Nano, v.Str); err == nil {
			return t
		}
	}
	return time.Time{}
}
