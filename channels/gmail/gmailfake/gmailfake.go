// Package gmailfake is a Gmail of one mailbox, in memory, that is as strict as Google's: it
// knows a bounded part of the history, refuses what the API does not document, answers with
// the errors that Google answers with, and shows changes late if it is told to. Tests, the demo
// and the simulator poll it. It imports the standard library only.
//
// The API is https://developers.google.com/workspace/gmail/api/reference/rest.
package gmailfake

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// RefreshToken is the one that the fake gives access tokens for.
const RefreshToken = "demo-refresh-token"

// base is a historyId beyond what fits into a signed integer.
const base = 1<<63 + 1000

// A Mailbox is a fake Gmail. Its zero value is not usable: call New. Safe for concurrent use.
type Mailbox struct {
	mux *http.ServeMux

	mu       sync.Mutex
	now      func() time.Time
	page     int // most that a page holds, however many are asked for
	messages map[string]*message
	order    []string // ids, oldest first
	history  []record
	last     uint64 // historyId of the mailbox
	oldest   uint64 // historyIds below are forgotten
	issued   map[uint64]bool
	numbers  int
	pages    map[string]pageKey // tokens given out
	tokens   map[string]time.Time
	revoked  bool
	lifetime time.Duration // of an access token
	fail     func(*http.Request) *Failure
	calls    map[string]int
	told     int            // answers that told of the mailbox's historyId
	fetched  map[string]int // by id of the message
}

type message struct {
	id       string
	raw      []byte
	labels   []string
	received time.Time
	changed  uint64    // historyId of its last change
	visible  time.Time // in histories and lists; fetched by id it is there at once
}

// A record is one change of the mailbox.
type record struct {
	id             uint64
	kind           string // as historyTypes has it
	message        string
	labels         []string // added or removed
	withoutLabelID bool
	visible        time.Time
}

// A pageKey is what a page token is good for.
type pageKey struct {
	what string // the question, without the token
	from int
}

// A Failure is an answer that the API gives instead of what was asked for.
type Failure struct {
	Status     int
	Reason     string
	Message    string
	RetryAfter string
	Hang       bool // it answers nothing, until the caller gives up
}

// New returns an empty mailbox. No two have numbers in common.
func New() *Mailbox {
	first := base + rand.Uint64N(1<<40) //nolint:gosec // nothing is guarded by it
	m := &Mailbox{
		now: time.Now, page: 500, messages: map[string]*message{}, last: first, oldest: first, issued: map[uint64]bool{first: true},
		numbers: rand.IntN(1 << 30), //nolint:gosec // nor by this
		pages:   map[string]pageKey{}, tokens: map[string]time.Time{}, lifetime: time.Hour, calls: map[string]int{}, fetched: map[string]int{},
	}
	m.mux = http.NewServeMux()
	m.mux.HandleFunc("POST /token", m.serveToken)
	m.mux.HandleFunc("GET /gmail/v1/users/me/profile", m.guarded("profile", m.serveProfile))
	m.mux.HandleFunc("GET /gmail/v1/users/me/history", m.guarded("history", m.serveHistory))
	m.mux.HandleFunc("GET /gmail/v1/users/me/messages", m.guarded("list", m.serveList))
	m.mux.HandleFunc("GET /gmail/v1/users/me/messages/{id}", m.guarded("get", m.serveMessage))
	return m
}

// ServeHTTP implements http.Handler.
func (m *Mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// change runs f while nobody else uses the mailbox.
func (m *Mailbox) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// Clock makes the mailbox go by another clock.
func (m *Mailbox) Clock(now func() time.Time) { m.change(func() { m.now = now }) }

// PageSize makes pages hold at most n.
func (m *Mailbox) PageSize(n int) { m.change(func() { m.page = n }) }

// TokenLifetime makes access tokens that are given out from now on last for d.
func (m *Mailbox) TokenLifetime(d time.Duration) { m.change(func() { m.lifetime = d }) }

// Fail makes the API ask f before each call: what it returns is the answer, unless it is nil.
// f must not use the mailbox. nil ends it.
func (m *Mailbox) Fail(f func(*http.Request) *Failure) { m.change(func() { m.fail = f }) }

// Revoke makes the refresh token, and all that was got for it, invalid; or valid again.
func (m *Mailbox) Revoke(revoked bool) {
	m.change(func() {
		m.revoked = revoked
		clear(m.tokens)
	})
}

// ExpireTokens makes the access tokens that were given out invalid.
func (m *Mailbox) ExpireTokens() { m.change(func() { clear(m.tokens) }) }

// ExpirePages makes the page tokens that were given out invalid.
func (m *Mailbox) ExpirePages() { m.change(func() { clear(m.pages) }) }

// Forget makes the mailbox forget the history so far.
func (m *Mailbox) Forget() {
	m.change(func() {
		m.history = nil
		m.step()
		m.oldest = m.last
	})
}

// step moves the mailbox's historyId on. They rise, with gaps.
func (m *Mailbox) step() uint64 {
	m.last += 1 + m.last*7919%13
	m.issued[m.last] = true
	return m.last
}

// Put delivers a mail with labels, INBOX and UNREAD if there are none, and returns its id.
func (m *Mailbox) Put(raw []byte, labels ...string) string { return m.PutLate(raw, 0, labels...) }

// PutLate is Put for a mail that histories and lists show only after a while. What happens
// meanwhile has later historyIds and may show before.
func (m *Mailbox) PutLate(raw []byte, late time.Duration, labels ...string) (id string) {
	m.change(func() { id = m.put(raw, m.now(), late, labels) })
	return id
}

// Import inserts a mail that was received at another time.
func (m *Mailbox) Import(raw []byte, received time.Time, labels ...string) (id string) {
	m.change(func() { id = m.put(raw, received, 0, labels) })
	return id
}

func (m *Mailbox) put(raw []byte, received time.Time, late time.Duration, labels []string) string {
	if len(labels) == 0 {
		labels = []string{"INBOX", "UNREAD"}
	}
	m.numbers++
	x := &message{
		id: fmt.Sprintf("18f%013x", m.numbers), raw: slices.Clone(raw), labels: slices.Clone(labels),
		received: received, changed: m.step(), visible: m.now().Add(late),
	}
	m.messages[x.id] = x
	// a listing is in the order in which mails were received
	at := len(m.order)
	for at > 0 && m.messages[m.order[at-1]].received.After(received) {
		at--
	}
	m.order = slices.Insert(m.order, at, x.id)
	m.history = append(m.history, record{
		id: x.changed, kind: "messageAdded", message: x.id, visible: x.visible, withoutLabelID: m.numbers%3 == 0,
	})
	return x.id
}

// Draft saves a draft instead of another; "" saves a new one. Each save has a new id.
func (m *Mailbox) Draft(raw []byte, instead string) string {
	if instead != "" {
		m.Delete(instead)
	}
	return m.Put(raw, "DRAFT")
}

// Delete deletes a message for good.
func (m *Mailbox) Delete(id string) {
	m.change(func() {
		delete(m.messages, id)
		m.order = slices.DeleteFunc(m.order, func(o string) bool { return o == id })
		m.history = append(m.history, record{id: m.step(), kind: "messageDeleted", message: id, visible: m.now()})
	})
}

// Label adds and removes labels of a message.
func (m *Mailbox) Label(id string, add, remove []string) {
	m.change(func() {
		x := m.messages[id]
		if x == nil {
			return
		}
		x.labels = slices.DeleteFunc(x.labels, func(l string) bool { return slices.Contains(remove, l) })
		x.labels = append(x.labels, add...)
		for _, c := range []struct {
			kind   string
			labels []string
		}{{"labelRemoved", remove}, {"labelAdded", add}} {
			if len(c.labels) > 0 {
				x.changed = m.step()
				m.history = append(m.history, record{id: x.changed, kind: c.kind, message: id, labels: c.labels, visible: m.now()})
			}
		}
	})
}

// Touch adds n changes that bring nothing new.
func (m *Mailbox) Touch(n int) {
	m.change(func() {
		for range n {
			for _, id := range m.order[max(0, len(m.order)-1):] {
				m.messages[id].changed = m.step()
				m.history = append(m.history, record{
					id: m.last, kind: "labelAdded", message: id, labels: []string{"STARRED"}, visible: m.now(),
				})
			}
		}
	})
}

// Repeat makes the history tell once more of a message that was added.
func (m *Mailbox) Repeat(id string) {
	m.change(func() {
		m.history = append(m.history, record{id: m.step(), kind: "messageAdded", message: id, visible: m.now()})
	})
}

// Calls returns how often a method was called: "token", "profile", "history", "list" or "get".
func (m *Mailbox) Calls(method string) (n int) {
	m.change(func() { n = m.calls[method] })
	return n
}

// Told returns how often somebody was told of the mailbox's historyId. What is put after that
// is new to who was told.
func (m *Mailbox) Told() (n int) {
	m.change(func() { n = m.told })
	return n
}

// Fetches returns how often each message was fetched, by its id.
func (m *Mailbox) Fetches() (n map[string]int) {
	m.change(func() { n = maps.Clone(m.fetched) })
	return n
}

// HistoryID returns that of the mailbox now.
func (m *Mailbox) HistoryID() (id uint64) {
	m.change(func() { id = m.last })
	return id
}

func (x *message) encoded(padded bool) string {
	if padded {
		return base64.URLEncoding.EncodeToString(x.raw)
	}
	return base64.RawURLEncoding.EncodeToString(x.raw)
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
