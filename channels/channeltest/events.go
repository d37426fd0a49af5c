package channeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// An identity is what two deliveries of one event have in common.
type identity struct {
	ID, Account, MessageKey, Conversation string
	Kind                                  domain.Kind
	Digest                                domain.Digest
}

func identities(events []domain.Event) []identity {
	ids := make([]identity, 0, len(events))
	for _, e := range events {
		ids = append(ids, identity{e.ID, e.Account, e.MessageKey, e.Conversation, e.Kind, e.Digest})
	}
	return ids
}

// different returns an error unless the events are the same ones.
func different(what string, got, want []domain.Event) error {
	if g, w := identities(got), identities(want); !slices.Equal(g, w) {
		return fmt.Errorf("%s: got %+v, want %+v", what, g, w)
	}
	return nil
}

// contents decodes events.
func (k *subject) contents(events []domain.Event) ([]domain.Content, error) {
	cs := make([]domain.Content, 0, len(events))
	for _, ev := range events {
		c, err := k.decode(ev)
		if err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// sound returns what is wrong with an event that came from an authentic request of any content.
func (k *subject) sound(ev domain.Event) error {
	var errs []error
	for what, id := range map[string]string{
		"id": ev.ID, "account": ev.Account, "message key": ev.MessageKey, "conversation": ev.Conversation,
	} {
		if id != domain.StorableID(id) {
			errs = append(errs, fmt.Errorf("the %s can't be stored: %.80q", what, id))
		}
	}
	switch ev.Kind {
	case domain.MessageCreated, domain.MessageEdited, domain.MessageDeleted, domain.MessageStatus, domain.Mention,
		domain.Reaction, domain.Command, domain.Interaction, domain.Membership, domain.Other:
	default:
		errs = append(errs, fmt.Errorf("there is no kind %q", ev.Kind))
	}
	if ev.MessageKey != "" && ev.Kind != domain.MessageCreated {
		errs = append(errs, fmt.Errorf("kind %s has the message key %q: it would be a duplicate of the message", ev.Kind, ev.MessageKey))
	}
	if ev.ID != "" && ev.Digest.IsZero() {
		errs = append(errs, errors.New("there is no digest: conflicts can't be seen"))
	}
	if len(ev.Payload.Body) == 0 || ev.Payload.MediaType == "" {
		errs = append(errs, fmt.Errorf("payload of %d bytes and media type %q: it can't be decoded later", len(ev.Payload.Body), ev.Payload.MediaType))
	}
	c, err := k.decode(ev)
	switch {
	case errors.Is(err, domain.ErrUnreadable):
	case err != nil:
		errs = append(errs, fmt.Errorf("decode: the error does not wrap domain.ErrUnreadable: %w", err))
	default:
		errs = append(errs, dispatchable(c))
	}
	return errors.Join(errs...)
}

// dispatchable returns what would make the application's copy of c unreadable.
func dispatchable(c domain.Content) error {
	if !json.Valid(c.Raw) || !utf8.Valid(c.Raw) {
		return fmt.Errorf("raw is not JSON in UTF-8: %.200q", c.Raw)
	}
	if _, err := json.Marshal(c); err != nil {
		return fmt.Errorf("the content can't be written as JSON: %w", err)
	}
	texts := []string{c.Text, c.Conversation.ExternalID, c.Conversation.Thread, c.Sender.ID, c.Sender.Name}
	for _, a := range c.Attachments {
		texts = append(texts, a.URL, a.Type, a.Name)
		if a.Size < 0 {
			return fmt.Errorf("an attachment has the size %d", a.Size)
		}
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("a text is not UTF-8: %.200q", text)
		}
	}
	return nil
}

func eventsAreStorable(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.events {
		events, err := k.receive(e, k.request(f))
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		for _, ev := range events {
			if err := k.sound(ev); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
			}
			if _, err := k.decode(ev); err != nil {
				errs = append(errs, fmt.Errorf("%s: decode: %w", f.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func fixturesHaveDistinctIDs(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	type key struct{ account, id string }
	type holder struct {
		fixture string
		is      identity
	}
	first := make(map[key]holder)
	var errs []error
	for _, f := range k.events {
		events, err := k.receive(e, k.request(f))
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if slices.Contains(k.Conflicts, f.name) {
			continue
		}
		for _, is := range identities(events) {
			if is.ID == "" {
				continue
			}
			at := key{is.Account, is.ID}
			switch h, ok := first[at]; {
			case !ok:
				first[at] = holder{f.name, is}
			case h.is != is:
				errs = append(errs, fmt.Errorf("%s and %s share the id %q, but not the content: %+v, %+v", h.fixture, f.name, is.ID, h.is, is))
			}
		}
	}
	return errors.Join(errs...)
}

func contentMakesTheID(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.events {
		if !slices.Contains(k.ByContent, f.name) {
			continue
		}
		want, err := k.receive(e, k.request(f))
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		for _, v := range values(f.body) {
			value := string(f.body[v.start:v.end])
			body := slices.Concat(f.body[:v.start], []byte(another(value)), f.body[v.end:])
			got, err := k.receive(e, k.withBody(f, body))
			if err != nil || len(got) != len(want) {
				continue // it says what no event has
			}
			for i := range got {
				if got[i].ID != "" && got[i].ID == want[i].ID && got[i].Digest != want[i].Digest {
					errs = append(errs, fmt.Errorf("%s, with another value in place of %.80s: the id is %q as before, so that one of the two would be lost", f.name, value, got[i].ID))
				}
			}
		}
	}
	return errors.Join(errs...)
}

func redeliveryHasSameIDs(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.events {
		want, err := k.receive(e, k.request(f))
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		other, err := k.endpoint() // another instance
		if err != nil {
			return err
		}
		retried := k.request(f)
		maps.Copy(retried.Header, k.RetryHeaders)
		for _, h := range []string{"User-Agent", "X-Request-Id", "X-Forwarded-For", "Date"} {
			if !slices.ContainsFunc(k.SignedHeaders, func(s string) bool { return strings.EqualFold(s, h) }) {
				retried.Header.Set(h, "192.0.2.1")
			}
		}
		for what, r := range map[string]*channels.Request{
			"again":              k.request(f),
			"with retry headers": retried,
			"signed an hour later": k.changed(f, func(r *channels.Request) {
				r.Now = r.Now.Add(time.Hour)
				maps.Copy(r.Header, k.RetryHeaders)
			}),
		} {
			got, err := k.receive(other, r)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %s: %w", f.name, what, err))
				continue
			}
			errs = append(errs, different(f.name+", "+what, got, want))
		}
	}
	return errors.Join(errs...)
}

func unreadableIsTold(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	tell := func(fs []fixture, want error) {
		for _, f := range fs {
			if _, err := k.receive(e, k.request(f)); !errors.Is(err, want) {
				errs = append(errs, fmt.Errorf("%s: got the error %q, want one that wraps %w", f.name, fmt.Sprint(err), want))
			}
		}
	}
	tell(k.unreadable, domain.ErrUnreadable)
	tell(k.unknownRecipient, domain.ErrUnknownRecipient)
	return errors.Join(errs...)
}

func rawIsWholeJSON(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range k.events {
		events, err := k.receive(e, k.request(f))
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		cs, err := k.contents(events)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		for i, c := range cs {
			var raw, body bytes.Buffer
			if err := json.Compact(&raw, c.Raw); err != nil {
				errs = append(errs, fmt.Errorf("%s: raw: %w", f.name, err))
				continue
			}
			if err := json.Compact(&body, events[i].Payload.Body); err != nil || !utf8.Valid(body.Bytes()) {
				continue // a form or a mail
			}
			if !bytes.Equal(raw.Bytes(), body.Bytes()) {
				errs = append(errs, fmt.Errorf("%s: raw is not the payload as it came: %s, want %s", f.name, &raw, &body))
			}
		}
	}
	return errors.Join(errs...)
}

func decodeNeedsOnlyThePayload(k *subject) error {
	var errs []error
	for _, f := range k.events {
		e, err := k.endpoint()
		if err != nil {
			return err
		}
		events, err := k.receive(e, k.request(f))
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		want, err := k.contents(events)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		stored, err := json.Marshal(events)
		if err != nil {
			return fmt.Errorf("%s: store: %w", f.name, err)
		}
		var read []domain.Event
		if err := json.Unmarshal(stored, &read); err != nil {
			return fmt.Errorf("%s: read: %w", f.name, err)
		}
		same := func(when string) error {
			got, err := k.contents(read)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", f.name, when, err)
			}
			if !reflect.DeepEqual(got, want) {
				return fmt.Errorf("%s, %s: got %+v, want %+v", f.name, when, got, want)
			}
			return nil
		}
		if err := same("stored and read again"); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, body := range hostile(f) {
			others, err := k.receive(e, k.withBody(f, body))
			if err != nil || len(others) == 0 {
				continue
			}
			if err := same("after another delivery, perhaps of the same id"); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

func bodyIsNotKept(k *subject) error {
	var errs []error
	for _, f := range k.events {
		e, err := k.endpoint()
		if err != nil {
			return err
		}
		first := k.request(f)
		want, err := k.receive(e, first)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		content, err := k.contents(want)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		for i := range first.Body { // as a server does that uses its buffers again
			first.Body[i] = 'x'
		}
		for h := range first.Header {
			first.Header[h][0] = "x"
		}
		got, err := k.receive(e, k.request(f))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s, after the buffer of its first delivery was used again: %w", f.name, err))
			continue
		}
		errs = append(errs, different(f.name+", after the buffer of its first delivery was used again", got, want))
		again, err := k.contents(want)
		if err != nil || !reflect.DeepEqual(again, content) {
			errs = append(errs, fmt.Errorf("%s: a copied event decodes to other content once its request is gone (error %q)", f.name, fmt.Sprint(err)))
		}
	}
	return errors.Join(errs...)
}

func concurrent(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	want := make([][]domain.Event, len(k.events))
	for i, f := range k.events {
		if want[i], err = k.receive(e, k.request(f)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	const goroutines = 64
	errs := make([]error, goroutines)
	for round := range k.events {
		// All verify before any extracts, so that what an endpoint keeps from the one for
		// the other is another request's.
		var verified, done sync.WaitGroup
		verified.Add(goroutines)
		for g := range goroutines {
			done.Go(func() {
				at := (round + g) % len(k.events)
				f := k.events[at]
				r := k.request(f)
				err := k.verify(e, r)
				verified.Done()
				verified.Wait()
				if err == nil {
					err = k.sameEvents(e, r, want[at])
				}
				if err != nil {
					errs[g] = fmt.Errorf("%s, with others at once: %w", f.name, err)
				}
			})
		}
		done.Wait()
	}
	return errors.Join(errs...)
}

func (k *subject) sameEvents(e channels.Endpoint, r *channels.Request, want []domain.Event) error {
	b, err := k.extract(e, r)
	if err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	if _, err := k.contents(b.Events); err != nil {
		return err
	}
	return different("extract", b.Events, want)
}
