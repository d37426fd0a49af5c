package torture

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/domain"
)

// clock is how times are told: a run is short.
const clock = "15:04:05.000"

// shown is how many violations are told with their receipt's history.
const shown = 20

// A screen is where a run tells what happens. Safe for concurrent use.
type screen struct {
	w    io.Writer
	live bool

	mu sync.Mutex
}

func (s *screen) say(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		fmt.Fprint(s.w, "\r\x1b[2K")
	}
	fmt.Fprintf(s.w, format+"\n", a...)
}

// progress shows a line that changes, or on what is no terminal a line now and then.
func (s *screen) progress(ctx context.Context, line func() string) {
	every := 5 * time.Second
	if s.live {
		every = 200 * time.Millisecond
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if !s.live {
			s.say("%s", line())
			continue
		}
		text := line()
		s.mu.Lock()
		fmt.Fprintf(s.w, "\r\x1b[2K%s", text)
		s.mu.Unlock()
	}
}

// line tells how far the run is.
func (r *run) line() string {
	v := r.vendors
	r.storm.mu.Lock()
	faults := 0
	for _, n := range r.storm.counts {
		faults += n
	}
	r.storm.mu.Unlock()
	r.checker.mu.Lock()
	violations := r.checker.total
	r.checker.mu.Unlock()
	return fmt.Sprintf("%5.1f s  %d sent: %d admitted, %d duplicates, %d refused, %d unanswered, %d forged; %d begun; %d faults, %d violations",
		time.Since(r.began).Seconds(), v.sent.Load(), v.admitted.Load(), v.duplicates.Load(), v.refused.Load(),
		v.unanswered.Load(), v.forgeries.Load(), r.application.begins.Load(), faults, violations)
}

// print tells the balance, the faults and the violations.
func (r *run) print(ctx context.Context, report Report) {
	r.screen.say("%s", r.line())
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "tenant\tplatform\tadmitted\thandled\tfailed\tlost\tdiscarded\topen\t\n")
	for _, s := range report.Sums {
		open := s.States[domain.Claimed] + s.States[domain.Dispatching] + s.States[domain.Retrying]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Tenant, s.Platform, s.Admitted, s.States[domain.Handled],
			s.States[domain.Failed], s.States[domain.Lost], s.States[domain.Discarded], open)
	}
	_ = w.Flush() // a builder takes everything
	r.screen.say("\n%s", b.String())

	b.Reset()
	r.storm.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(r.storm.counts)) {
		fmt.Fprintf(&b, "  %4d  %s\n", r.storm.counts[name], name)
	}
	r.storm.mu.Unlock()
	spoiled := 0
	for _, in := range r.fleet.instances {
		if in.durable != nil {
			spoiled += in.durable.Spoiled()
		}
	}
	if spoiled > 0 {
		fmt.Fprintf(&b, "  %4d  commits spoiled\n", spoiled)
	}
	r.screen.say("faults:\n%s", b.String())

	for i, v := range report.Violations {
		if i == shown {
			r.screen.say("  and %d more violations", report.Total-i)
			break
		}
		r.screen.say("%s", r.violation(ctx, v))
	}
	took := time.Since(r.began).Seconds()
	if report.Total > 0 {
		r.screen.say("FAILED: %d violations. Seed %d. %.1f s", report.Total, r.Seed, took)
		return
	}
	r.screen.say("PASSED: no violation. Seed %d. %.1f s", r.Seed, took)
}

// violation tells one with what is known of its event and the history of its receipt.
func (r *run) violation(ctx context.Context, v Violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "VIOLATION of %s", v.Promise)
	if v.Event >= 0 {
		fmt.Fprintf(&b, ", event %d", v.Event)
	}
	fmt.Fprintf(&b, ": %s\n", v.What)
	if v.Event >= 0 && v.Event < int64(r.Events) {
		e := r.plan.event(uint32(v.Event)) //nolint:gosec // it is one
		fmt.Fprintf(&b, "    %s, %s, %d copies, phantom %t, forged %t, again %t\n", e.in.id, e.in.guarantee, e.copies, e.phantom, e.forged, e.again)
	}
	if v.Receipt == (uuid.UUID{}) {
		return b.String()
	}
	x, history, err := r.store.Receipt(ctx, v.Receipt.String())
	if err != nil {
		fmt.Fprintf(&b, "    receipt %s: %v\n", v.Receipt, err)
		return b.String()
	}
	holder := x.Holder
	if in := r.checker.holders[x.Holder]; in != nil {
		holder = in.name
	}
	fmt.Fprintf(&b, "    receipt %s %s, attempt %d, %d deliveries, holder %s, claimed %s, begun %s, handled %s, %q\n", x.ID, x.State, x.Attempt,
		x.Deliveries, holder, x.ClaimedAt.Format(clock), x.BegunAt.Format(clock), x.HandledAt.Format(clock), x.LastError)
	for _, h := range history {
		fmt.Fprintf(&b, "      %s  %s, attempt %d: %s %s %s\n", h.At.Format(clock), h.What, h.Attempt, h.State, h.Reason, h.By)
	}
	for _, i := range r.checker.incidents {
		if i.to.Before(x.ClaimedAt) && !i.to.IsZero() || i.from.After(x.ClaimedAt.Add(3*lease)) {
			continue
		}
		name := "all"
		if i.instance != nil {
			name = i.instance.name
		}
		fmt.Fprintf(&b, "      %s  to %s  %s of %s\n", i.from.Format(clock), i.to.Format(clock), i.kind, name)
	}
	return b.String()
}
