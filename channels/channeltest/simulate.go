package channeltest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// simulation returns one that every channel can play.
func (k *subject) simulation() channels.Simulation {
	public := k.PublicURL
	if public == "" {
		public = "https://hooks.example.com"
	}
	return channels.Simulation{
		URL:       "http://127.0.0.1:8080/in/" + k.Channel.Name + "/simulated",
		PublicURL: public,
		Account:   k.Credentials.Account,
		EventID:   "1001",
		Message:   "501",
		From:      "15550100",
		Text:      `Grüße 😀 100% "quoted" +1`,
		Now:       k.Now,
	}
}

// simulate returns the request that the server would see.
func (k *subject) simulate(c channels.Credentials, s channels.Simulation) (*channels.Request, error) {
	var r *channels.Request
	err := k.remember(guard(func() error {
		h, err := k.Channel.Simulate(c, s)
		if err != nil {
			return err
		}
		target, _, _ := strings.Cut(h.URL.String(), "?")
		if target != s.URL {
			return fmt.Errorf("the request goes to %s, not to %s", target, s.URL)
		}
		r = &channels.Request{Method: h.Method, URL: s.PublicURL + h.URL.RequestURI(), Header: h.Header.Clone(), Now: s.Now}
		if h.Body != nil {
			if r.Body, err = io.ReadAll(h.Body); err != nil {
				return err
			}
		}
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	return r, nil
}

// play sends a simulated request to a fresh endpoint and returns the one event in it.
func (k *subject) play(s channels.Simulation) (domain.Event, error) {
	e, err := k.endpoint()
	if err != nil {
		return domain.Event{}, err
	}
	r, err := k.simulate(k.Credentials, s)
	if err != nil {
		return domain.Event{}, err
	}
	if !k.Channel.Uses(r.Method) {
		return domain.Event{}, fmt.Errorf("the channel does not use %s", r.Method)
	}
	events, err := k.receive(e, r)
	if err != nil {
		return domain.Event{}, err
	}
	if len(events) != 1 {
		return domain.Event{}, fmt.Errorf("%d events, want 1", len(events))
	}
	return events[0], nil
}

func simulatedRequestIsGenuine(k *subject) error {
	s := k.simulation()
	first, err := k.play(s)
	if err != nil {
		return err
	}
	var errs []error
	broken := func(ok bool, format string, a ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	broken(first.Kind == domain.MessageCreated, "kind %s, want %s", first.Kind, domain.MessageCreated)
	broken(first.ID != "", "the event has no id")
	broken(first.MessageKey != "", "the message has no key")
	broken(first.Account == "" || s.Account == "" || first.Account == s.Account, "account %q, want %q", first.Account, s.Account)
	if err := k.sound(first); err != nil {
		errs = append(errs, err)
	}
	c, err := k.decode(first)
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	broken(strings.TrimSpace(c.Text) == s.Text, "text %q, want %q", c.Text, s.Text)
	broken(c.Sender.ID != "", "the message has no sender")

	vary := func(what string, change func(*channels.Simulation), ok func(domain.Event) bool) {
		v := s
		change(&v)
		ev, err := k.play(v)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			return
		}
		broken(ok(ev), "%s: got %+v after %+v", what, identities([]domain.Event{ev}), identities([]domain.Event{first}))
	}
	vary("a retry is the same event", func(v *channels.Simulation) { v.Retry = 1 }, func(ev domain.Event) bool {
		return identities([]domain.Event{ev})[0] == identities([]domain.Event{first})[0]
	})
	vary("a retry an hour later has the same id and message key", func(v *channels.Simulation) {
		v.Retry = 2
		v.Now = v.Now.Add(time.Hour)
	}, func(ev domain.Event) bool { return ev.ID == first.ID && ev.MessageKey == first.MessageKey })
	ids := []string{first.ID}
	for _, id := range []string{"1002", "evt-a", "evt-b"} {
		vary("each EventID, number or not, is an event of its own", func(v *channels.Simulation) { v.EventID = id },
			func(ev domain.Event) bool {
				known := slices.Contains(ids, ev.ID)
				ids = append(ids, ev.ID)
				return !known
			})
	}
	vary("another Message is another message", func(v *channels.Simulation) { v.Message = "502" },
		func(ev domain.Event) bool { return ev.MessageKey != first.MessageKey })
	vary("another From is another conversation", func(v *channels.Simulation) { v.From = "15550199" },
		func(ev domain.Event) bool { return first.Conversation == "" || ev.Conversation != first.Conversation })
	vary("a From that is left out is somebody all the same", func(v *channels.Simulation) { v.From = "" },
		func(ev domain.Event) bool {
			c, err := k.decode(ev)
			return err == nil && c.Sender.ID != "" && (first.Conversation == "" || ev.Conversation != "")
		})
	vary("a new event with the same text is new", func(v *channels.Simulation) { v.EventID, v.Message = "1003", "503" },
		func(ev domain.Event) bool {
			return ev.ID != first.ID && ev.MessageKey != first.MessageKey
		})
	return errors.Join(errs...)
}

// missingIDIsNoKey empties the values of two messages of one sender, one after the other. Since
// the messages have different words, what makes them one event, or one message, is a key that
// was made of nothing.
func missingIDIsNoKey(k *subject) error {
	e, err := k.endpoint()
	if err != nil {
		return err
	}
	one, other := k.simulation(), k.simulation()
	other.EventID, other.Message, other.Text = "2002", "602", "Other words"
	first, err := k.simulate(k.Credentials, one)
	if err != nil {
		return err
	}
	second, err := k.simulate(k.Credentials, other)
	if err != nil {
		return err
	}
	firsts, seconds := emptied(first.Body), emptied(second.Body)
	if len(firsts) != len(seconds) {
		return nil // what stands at one place in the one stands elsewhere in the other
	}
	send := func(r channels.Request, body []byte) (domain.Event, bool) {
		r.Header, r.Body = r.Header.Clone(), body
		k.Sign(&r)
		events, err := k.receive(e, &r)
		if err != nil || len(events) != 1 {
			return domain.Event{}, false // it is refused, unreadable or ignored, and no event's key is touched
		}
		return events[0], true
	}
	var errs []error
	for i := range firsts {
		if bytes.Equal(firsts[i], seconds[i]) {
			continue // nothing tells them apart any more
		}
		a, ok1 := send(*first, firsts[i])
		b, ok2 := send(*second, seconds[i])
		if !ok1 || !ok2 {
			continue
		}
		for _, key := range []struct{ what, a, b string }{{"id", a.ID, b.ID}, {"message key", a.MessageKey, b.MessageKey}} {
			if key.a == key.b && key.a != "" {
				errs = append(errs, fmt.Errorf("two messages have the %s %q if each lacks a value: %s", key.what, key.a, firsts[i]))
			}
		}
	}
	return errors.Join(errs...)
}

// emptied returns body, if it is JSON, with nothing in place of each value.
func emptied(body []byte) [][]byte {
	var bodies [][]byte
	for _, v := range values(body) {
		for _, nothing := range []string{`""`, "null"} {
			bodies = append(bodies, slices.Concat(body[:v.start], []byte(nothing), body[v.end:]))
		}
	}
	return bodies
}
