package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// defaultLimit is how many receipts are meant where nobody says.
const defaultLimit = 100

// A Receipt is a receipt as the admin API shows it. Times are in UTC, null where there is none.
type Receipt struct {
	ID            string     `json:"id" format:"uuid"`
	Tenant        string     `json:"tenant"`
	Platform      string     `json:"platform"`
	Channel       string     `json:"channel"`
	Account       string     `json:"account"`
	EventID       string     `json:"event_id"`
	MessageKey    string     `json:"message_key" doc:"Empty where the event speaks of no new message."`
	Kind          string     `json:"kind"`
	State         string     `json:"state" enum:"claimed,dispatching,retrying,handled,failed,lost,discarded"`
	Attempt       int        `json:"attempt" doc:"Dispatches begun."`
	Deliveries    int        `json:"deliveries" doc:"Deliveries seen, suppressed duplicates included; a little late."`
	VendorAttempt int        `json:"vendor_attempt" doc:"Highest retry count that the vendor told."`
	ClaimedAt     *time.Time `json:"claimed_at"`
	BegunAt       *time.Time `json:"begun_at"`
	HandledAt     *time.Time `json:"handled_at"`
	LeaseUntil    *time.Time `json:"lease_until"`
	Holder        string     `json:"holder" doc:"Instance that has claimed or begun it last."`
	LastError     string     `json:"last_error"`
	Digest        string     `json:"digest" doc:"Of the content, in hex."`
}

func receiptOf(r domain.Receipt) Receipt {
	return Receipt{
		ID:            r.ID,
		Tenant:        r.Key.Tenant,
		Platform:      r.Key.Platform,
		Channel:       r.Channel,
		Account:       r.Key.Account,
		EventID:       r.Key.EventID,
		MessageKey:    r.MessageKey,
		Kind:          string(r.Kind),
		State:         string(r.State),
		Attempt:       r.Attempt,
		Deliveries:    r.Deliveries,
		VendorAttempt: r.VendorAttempt,
		ClaimedAt:     instant(r.ClaimedAt),
		BegunAt:       instant(r.BegunAt),
		HandledAt:     instant(r.HandledAt),
		LeaseUntil:    instant(r.LeaseUntil),
		Holder:        r.Holder,
		LastError:     r.LastError,
		Digest:        r.Digest.String(),
	}
}

// instant returns t in UTC, or nil, which is null in JSON, for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

type entry struct {
	At      *time.Time `json:"at"`
	What    string     `json:"what" example:"attempt"`
	Attempt int        `json:"attempt"`
	State   string     `json:"state" doc:"State after it."`
	Reason  string     `json:"reason"`
	By      string     `json:"by" doc:"Who, where a person asked."`
}

type receiptWithHistory struct {
	Receipt
	History []entry `json:"history" nullable:"false" doc:"Oldest first."`
}

type listInput struct {
	Tenant   string `query:"tenant"`
	Platform string `query:"platform"`
	State    string `query:"state" enum:"claimed,dispatching,retrying,handled,failed,lost,discarded"`
	Query    string `query:"q" doc:"An exact receipt id, event id or message key."`
	Since    string `query:"since" doc:"Claimed since then: a time of RFC 3339, or how long ago, such as 24h."`
	Limit    int    `query:"limit" minimum:"0" maximum:"1000" default:"100"`
	Cursor   string `query:"cursor" doc:"next of the page before."`
}

type listOutput struct {
	Body struct {
		Receipts []Receipt `json:"receipts" nullable:"false"`
		Next     string    `json:"next" doc:"The cursor of the next page; empty on the last one."`
	}
}

// A Caller tells who asks for a change, for the history of the receipt.
type Caller struct{ by string }

// Resolve is called by the library with the request.
func (c *Caller) Resolve(ctx huma.Context) []error {
	c.by = "admin API " + ctx.RemoteAddr()
	return nil
}

type oneInput struct {
	ID string `path:"id"`
}

type oneOutput struct{ Body receiptWithHistory }

type changeInput struct {
	Caller
	ID string `path:"id"`
}

type replayAllInput struct {
	Caller
	Body struct {
		Tenant   string `json:"tenant,omitempty"`
		Platform string `json:"platform,omitempty"`
		State    string `json:"state,omitempty" enum:"handled,failed,lost,discarded" doc:"Left out: failed and lost."`
		Since    string `json:"since,omitempty" doc:"Claimed since then: a time of RFC 3339, or how long ago, such as 24h."`
		Limit    int    `json:"limit,omitempty" minimum:"0" maximum:"1000" default:"100" doc:"At most so many."`
	}
}

type replayOutput struct {
	Body struct {
		Replayed int `json:"replayed"`
	}
}

type discardOutput struct {
	Body struct {
		Discarded int `json:"discarded"`
	}
}

func (a *admin) registerReceipts() {
	tags := []string{"receipts"}
	register(a, huma.Operation{
		OperationID: "list-receipts", Method: http.MethodGet, Path: "/api/v1/receipts", Tags: tags,
		Summary: "A page of receipts, newest first",
		Errors:  []int{http.StatusUnprocessableEntity},
	}, a.list)
	register(a, huma.Operation{
		OperationID: "get-receipt", Method: http.MethodGet, Path: "/api/v1/receipts/{id}", Tags: tags,
		Summary: "One receipt with its history",
		Errors:  []int{http.StatusNotFound},
	}, a.receipt)
	register(a, huma.Operation{
		OperationID: "replay-receipt", Method: http.MethodPost, Path: "/api/v1/receipts/{id}/replay", Tags: tags,
		Summary:     "Dispatch a closed receipt again",
		Description: "The receipt keeps its id, and a vendor's retry stays a duplicate of it.",
		Errors:      []int{http.StatusNotFound, http.StatusConflict},
	}, a.replay)
	register(a, huma.Operation{
		OperationID: "discard-receipt", Method: http.MethodPost, Path: "/api/v1/receipts/{id}/discard", Tags: tags,
		Summary: "Close a failed, lost or retrying receipt by hand",
		Errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.discard)
	register(a, huma.Operation{
		OperationID: "replay-receipts", Method: http.MethodPost, Path: "/api/v1/receipts/replay", Tags: tags,
		Summary: "Dispatch the closed receipts that a filter selects again",
		Errors:  []int{http.StatusBadRequest, http.StatusUnprocessableEntity},
	}, a.replayAll)
}

// each returns what f makes of each element. It is a list even if there is none: JSON has null for
// what is missing.
func each[From, To any](all []From, f func(From) To) []To {
	out := make([]To, len(all))
	for i, v := range all {
		out[i] = f(v)
	}
	return out
}

func entryOf(h ports.Entry) entry {
	return entry{At: instant(h.At), What: h.What, Attempt: h.Attempt, State: string(h.State), Reason: h.Reason, By: h.By}
}

func (a *admin) list(ctx context.Context, in *listInput) (*listOutput, error) {
	f, err := filter(ports.Filter{
		Tenant: in.Tenant, Platform: in.Platform, State: domain.State(in.State),
		Query: in.Query, Limit: in.Limit, Cursor: in.Cursor,
	}, in.Since, "query")
	if err != nil {
		return nil, err
	}
	page, err := a.Ledger.Receipts(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list receipts: %w", err)
	}
	out := new(listOutput)
	out.Body.Receipts, out.Body.Next = each(page.Receipts, receiptOf), page.Next
	return out, nil
}

func (a *admin) receipt(ctx context.Context, in *oneInput) (*oneOutput, error) {
	if uuid.Validate(in.ID) != nil {
		return nil, domain.ErrNotFound
	}
	r, history, err := a.Ledger.Receipt(ctx, in.ID)
	if err != nil {
		return nil, fmt.Errorf("read receipt: %w", err)
	}
	out := &oneOutput{Body: receiptWithHistory{Receipt: receiptOf(r), History: each(history, entryOf)}}
	return out, nil
}

func (a *admin) replay(ctx context.Context, in *changeInput) (*replayOutput, error) {
	if uuid.Validate(in.ID) != nil {
		return nil, domain.ErrNotFound
	}
	if err := a.Ledger.Replay(ctx, in.ID, in.by); err != nil {
		return nil, fmt.Errorf("replay receipt: %w", err)
	}
	a.Nudge()
	out := new(replayOutput)
	out.Body.Replayed = 1
	return out, nil
}

func (a *admin) discard(ctx context.Context, in *changeInput) (*discardOutput, error) {
	if uuid.Validate(in.ID) != nil {
		return nil, domain.ErrNotFound
	}
	if err := a.Ledger.Discard(ctx, in.ID, in.by); err != nil {
		return nil, fmt.Errorf("discard receipt: %w", err)
	}
	out := new(discardOutput)
	out.Body.Discarded = 1
	return out, nil
}

func (a *admin) replayAll(ctx context.Context, in *replayAllInput) (*replayOutput, error) {
	f, err := filter(ports.Filter{
		Tenant: in.Body.Tenant, Platform: in.Body.Platform,
		State: domain.State(in.Body.State), Limit: in.Body.Limit,
	}, in.Body.Since, "body")
	if err != nil {
		return nil, err
	}
	// What the application has taken, or a person has closed, is done again only by name.
	states := []domain.State{domain.Failed, domain.Lost}
	if f.State != "" {
		states = []domain.State{f.State}
	}
	out := new(replayOutput)
	for left := f.Limit; len(states) > 0 && left > 0; states = states[1:] {
		f.State, f.Limit = states[0], left
		n, err := a.Ledger.ReplayAll(ctx, f, in.by)
		if n > 0 {
			a.Nudge()
		}
		if err != nil {
			return nil, fmt.Errorf("replay %s receipts: %w", f.State, err)
		}
		out.Body.Replayed += n
		left -= n
	}
	return out, nil
}

// filter completes f, whose fields came by way of loc.
func filter(f ports.Filter, since, loc string) (ports.Filter, error) {
	if err := texts(loc, field{"tenant", f.Tenant}, field{"platform", f.Platform}, field{"q", f.Query}, field{"cursor", f.Cursor}); err != nil {
		return f, err
	}
	if f.Limit == 0 {
		f.Limit = defaultLimit
	}
	if since == "" {
		return f, nil
	}
	if ago, err := time.ParseDuration(since); err == nil && ago >= 0 {
		f.Since = time.Now().Add(-ago)
		return f, nil
	}
	t, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return f, invalid(loc+".since", "is neither a time of RFC 3339 nor how long ago, such as 24h")
	}
	f.Since = t
	return f, nil
}

type field struct{ name, value string }

// texts returns what is wrong with fields that came by way of loc: no store can compare with bytes
// that are no text.
func texts(loc string, fields ...field) error {
	for _, f := range fields {
		if !utf8.ValidString(f.value) || strings.IndexByte(f.value, 0) >= 0 {
			return invalid(loc+"."+f.name, "is not a text")
		}
	}
	return nil
}

func invalid(location, message string) error {
	p := problem(http.StatusUnprocessableEntity, "validation failed")
	p.Errors = []*huma.ErrorDetail{{Location: location, Message: message}}
	return p
}
