package channeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/admitone/admitone/domain"
)

// A goldenBatch is the form of a golden file: what a channel makes of one fixture.
type goldenBatch struct {
	Events []goldenEvent `json:"events"`
	Reply  *goldenReply  `json:"reply,omitempty"`
}

type goldenEvent struct {
	ID            string        `json:"id"`
	Account       string        `json:"account,omitempty"`
	Kind          domain.Kind   `json:"kind"`
	MessageKey    string        `json:"message_key,omitempty"`
	Conversation  string        `json:"conversation,omitempty"`
	Digest        string        `json:"digest"`
	VendorAttempt int           `json:"vendor_attempt,omitempty"`
	Content       goldenContent `json:"content"`
}

type goldenContent struct {
	Conversation string             `json:"conversation,omitempty"`
	Thread       string             `json:"thread,omitempty"`
	SenderID     string             `json:"sender_id,omitempty"`
	SenderName   string             `json:"sender_name,omitempty"`
	Text         string             `json:"text,omitempty"`
	Attachments  []goldenAttachment `json:"attachments,omitempty"`
	Time         *time.Time         `json:"time,omitempty"`
	Raw          json.RawMessage    `json:"raw"`
}

type goldenAttachment struct {
	URL  string `json:"url,omitempty"`
	Type string `json:"type,omitempty"`
	Name string `json:"name,omitempty"`
	Size int64  `json:"size,omitempty"`
}

type goldenReply struct {
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
}

func goldenFile(dir string, f fixture) string {
	return filepath.Join(dir, "testdata", f.name+".golden.json")
}

func writeGolden(dir string, s Spec) error {
	k, err := newSubject(dir, s)
	if err != nil {
		return err
	}
	for _, f := range slices.Concat(k.events, k.handshakes) {
		text, err := k.goldenText(f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := os.WriteFile(goldenFile(k.dir, f), text, 0o644); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func golden(k *subject) error {
	var errs []error
	for _, f := range slices.Concat(k.events, k.handshakes) {
		got, err := k.goldenText(f)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
			continue
		}
		want, err := os.ReadFile(goldenFile(k.dir, f))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w (written by go test -update)", f.name, err))
			continue
		}
		if !bytes.Equal(got, want) {
			errs = append(errs, fmt.Errorf("%s: differs from its golden file\ngot  %s\nwant %s", f.name, got, want))
		}
	}
	return errors.Join(errs...)
}

func (k *subject) goldenText(f fixture) ([]byte, error) {
	e, err := k.endpoint()
	if err != nil {
		return nil, err
	}
	r := k.request(f)
	if err := k.verify(e, r); err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	b, err := k.extract(e, r)
	if err != nil {
		return nil, fmt.Errorf("extract: %w", err)
	}
	g := goldenBatch{Events: []goldenEvent{}}
	if b.Reply != nil {
		g.Reply = &goldenReply{b.Reply.ContentType, string(b.Reply.Body)}
	}
	for _, ev := range b.Events {
		c, err := k.decode(ev)
		if err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		g.Events = append(g.Events, goldenOf(ev, c))
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(g); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return text.Bytes(), nil
}

func goldenOf(ev domain.Event, c domain.Content) goldenEvent {
	g := goldenEvent{
		ID: ev.ID, Account: ev.Account, Kind: ev.Kind, MessageKey: ev.MessageKey,
		Conversation: ev.Conversation, Digest: ev.Digest.String(), VendorAttempt: ev.VendorAttempt,
		Content: goldenContent{
			Conversation: c.Conversation.ExternalID, Thread: c.Conversation.Thread,
			SenderID: c.Sender.ID, SenderName: c.Sender.Name, Text: c.Text, Raw: c.Raw,
		},
	}
	for _, a := range c.Attachments {
		g.Content.Attachments = append(g.Content.Attachments, goldenAttachment(a))
	}
	if !c.Time.IsZero() {
		utc := c.Time.UTC()
		g.Content.Time = &utc
	}
	return g
}
