package sqlstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/admitone/admitone/adapters/servertest"
	"github.com/admitone/admitone/adapters/sqlstore"
	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/migrations"
	"github.com/admitone/admitone/ports"
)

const holder = "instance-1"

// receipt returns a receipt to be claimed, in a conversation of its own.
func receipt(id string) domain.Receipt {
	return domain.Receipt{
		ID:           uuid.Must(uuid.NewV7()).String(),
		Key:          domain.Key{Tenant: "acme", Platform: "slack", Account: "T1", EventID: id},
		Channel:      "slack",
		Installation: "main",
		MessageKey:   "message of " + id,
		Kind:         domain.MessageCreated,
		Conversation: "conversation of " + id,
		Digest:       domain.DigestOf("content", id),
		Guarantee:    domain.AtMostOnce,
		State:        domain.Claimed,
		ClaimedAt:    time.Now(),
		Holder:       holder,
		Payload:      domain.Payload{MediaType: "application/json", Body: []byte(`{}`)},
	}
}

func refOf(r domain.Receipt) ports.Ref {
	return ports.Ref{Tenant: r.Key.Tenant, ID: r.ID, Holder: r.Holder, Attempt: r.Attempt}
}

func claim(ctx context.Context, s *sqlstore.Store, r domain.Receipt) ports.Claim {
	return s.Claim(ctx, []domain.Receipt{r})[0]
}

// within bounds a call that the faults of a test might let run on.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// proxied opens a store through a proxy, warmed up, and one past it.
func proxied(t *testing.T) (*proxy, *sqlstore.Store, *sqlstore.Store) {
	t.Helper()
	c := pgConfig(t)
	direct := open(t, c)
	p := newProxy(t, c.DSN)
	c.DSN = p.DSN
	s := open(t, c)
	warm := claim(t.Context(), s, receipt("warm"))
	if warm.Err != nil {
		t.Fatalf("Claim through the proxy: %v", warm.Err)
	}
	return p, s, direct
}

// handle claims, begins and settles r on s, which must answer each as if nothing happened.
func handle(ctx context.Context, s *sqlstore.Store, r domain.Receipt) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if c := claim(ctx, s, r); c.Err != nil || !c.Won || c.Receipt.ID != r.ID {
		return fmt.Errorf("claim: won %t, %w", c.Won, c.Err)
	}
	n, err := s.Begin(ctx, refOf(r), time.Minute)
	if err != nil || n != 1 {
		return fmt.Errorf("begin: %d, %w", n, err)
	}
	r.Attempt = n
	return s.Settle(ctx, ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Failed}, Reason: "rejected"})
}

// wantOnce checks that a receipt was claimed, begun and settled exactly once.
func wantOnce(t *testing.T, s *sqlstore.Store, id string) {
	t.Helper()
	r, noted, err := s.Receipt(t.Context(), id)
	if err != nil || r.State != domain.Failed || r.Attempt != 1 || len(noted) != 1 {
		t.Errorf("receipt = %s, %d attempts, %d entries of history, %v; want failed, 1, 1", r.State, r.Attempt, len(noted), err)
	}
}

func TestLostAnswerToCommitIsFoundOut(t *testing.T) {
	t.Parallel()
	p, s, direct := proxied(t)
	for times := range 4 {
		toServer, toClient, left := cutsAnswers(3 * times)
		p.set(toServer, toClient)
		r := receipt(fmt.Sprintf("Ev%d", times))
		if err := handle(t.Context(), s, r); err != nil {
			t.Error(err)
		}
		if left() != 0 {
			t.Errorf("%d answers were not cut", left())
		}
		p.set(nil, nil)
		wantOnce(t, direct, r.ID)
	}
	if page, err := direct.Receipts(t.Context(), ports.Filter{}); err != nil || len(page.Receipts) != 5 {
		t.Errorf("%d receipts, %v; want 5", len(page.Receipts), err)
	}
}

func TestLostAnswerOfLostClaimIsFoundOut(t *testing.T) {
	t.Parallel()
	p, s, direct := proxied(t)
	first := claim(t.Context(), direct, receipt("Ev1"))
	toServer, toClient, left := cutsAnswers(2)
	p.set(toServer, toClient)
	if c := claim(within(t, 30*time.Second), s, receipt("Ev1")); c.Err != nil || c.Won || c.Receipt.ID != first.Receipt.ID || left() != 0 {
		t.Errorf("Claim = won %t, %v, %d answers not cut; want lost to the first", c.Won, c.Err, left())
	}
}

func TestCommitThatNeverArrivedIsSentAgain(t *testing.T) {
	t.Parallel()
	p, s, direct := proxied(t)
	for times := range 4 {
		toServer, left := cutsRequests(3 * times)
		p.set(toServer, nil)
		r := receipt(fmt.Sprintf("Ev%d", times))
		if err := handle(t.Context(), s, r); err != nil {
			t.Error(err)
		}
		if left() != 0 {
			t.Errorf("%d requests were not cut", left())
		}
		p.set(nil, nil)
		wantOnce(t, direct, r.ID)
	}
}

// A batch that holds a row which can't be stored is applied one by one, and each of these
// commits may lose its answer too.
func TestLostAnswerInBadCompanyIsFoundOut(t *testing.T) {
	t.Parallel()
	p, s, direct := proxied(t)
	toServer, toClient, left := cutsAnswers(6)
	p.set(toServer, toClient)
	batch := []domain.Receipt{receipt("Ev1"), receipt("bad"), receipt("Ev2"), receipt("Ev1"), receipt("Ev3")}
	batch[1].Conversation = "a\x00b"
	answers := s.Claim(within(t, 30*time.Second), batch)
	p.set(nil, nil)
	for i, want := range []bool{true, false, true, false, true} {
		c := answers[i]
		if i == 1 {
			if c.Err == nil || errors.Is(c.Err, domain.ErrUnknown) || errors.Is(c.Err, domain.ErrUnavailable) {
				t.Errorf("Claim of a text with a NUL = won %t, %v; want a refusal", c.Won, c.Err)
			}
			continue
		}
		if c.Err != nil || c.Won != want {
			t.Errorf("Claim(%s, %d) = won %t, %v; want %t", batch[i].Key.EventID, i, c.Won, c.Err, want)
		}
		if _, _, err := direct.Receipt(t.Context(), c.Receipt.ID); err != nil {
			t.Errorf("Receipt = %v; want the one that the answer names", err)
		}
	}
	if left() != 0 {
		t.Errorf("%d answers were not cut", left())
	}
}

// Many callers share the batches whose connections are cut, at any message.
func TestCutsUnderLoadLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	p, s, direct := proxied(t)
	var n atomic.Int64
	rule := func(_ *link, m message) verdict {
		if (m.kind == 'B' || m.kind == 'C' || m.kind == 'Z') && n.Add(1)%23 == 0 {
			return cut
		}
		return pass
	}
	p.set(rule, rule)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	for w := range 16 {
		wg.Go(func() {
			for i := range 8 {
				r := receipt(fmt.Sprintf("Ev%d-%d", w, i))
				ctx := within(t, 60*time.Second)
				// nothing was sent where a connection could not be had; then the caller comes again
				for c := claim(ctx, s, r); !c.Won; c = claim(ctx, s, r) {
					if !errors.Is(c.Err, domain.ErrUnavailable) {
						t.Errorf("Claim = won %t, %v; want won or ErrUnavailable", c.Won, c.Err)
						return
					}
				}
				_, err := s.Begin(ctx, refOf(r), time.Minute)
				for errors.Is(err, domain.ErrUnavailable) {
					_, err = s.Begin(ctx, refOf(r), time.Minute)
				}
				if err != nil {
					t.Errorf("Begin = %v; want nil or ErrUnavailable", err)
					return
				}
				r.Attempt = 1
				failed := ports.Settlement{Ref: refOf(r), Step: domain.Step{State: domain.Failed}, Reason: "rejected"}
				for err = s.Settle(ctx, failed); errors.Is(err, domain.ErrUnavailable); err = s.Settle(ctx, failed) {
				}
				if err != nil {
					t.Errorf("Settle = %v; want nil or ErrUnavailable", err)
					return
				}
				mu.Lock()
				ids = append(ids, r.ID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	p.set(nil, nil)
	for _, id := range ids {
		wantOnce(t, direct, id)
	}
	if len(ids) != 128 {
		t.Errorf("%d events were handled; want 128", len(ids))
	}
}

func TestUnreachableStoreIsToldAtOnce(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: server.Database(t).DSN, Migrate: true}
	s := open(t, c)
	before := receipt("before")
	if c := claim(t.Context(), s, before); !c.Won {
		t.Fatalf("Claim = %v; want won", c.Err)
	}
	server.Stop(t)
	// the first calls find connections that died, later ones find nobody to connect to
	for i := range 5 {
		begun := time.Now()
		r := receipt(fmt.Sprintf("down %d", i))
		if c := claim(within(t, 5*time.Second), s, r); !errors.Is(c.Err, domain.ErrUnavailable) && !errors.Is(c.Err, domain.ErrUnknown) {
			t.Errorf("Claim without a server = won %t, %v; want ErrUnavailable", c.Won, c.Err)
		} else if i > 0 && (!errors.Is(c.Err, domain.ErrUnavailable) || time.Since(begun) > 2*time.Second) {
			t.Errorf("Claim without a server = %v after %s; want ErrUnavailable at once", c.Err, time.Since(begun))
		}
	}
	for what, err := range map[string]error{
		"Begin":  second(s.Begin(t.Context(), refOf(before), time.Minute)),
		"Settle": s.Settle(within(t, 5*time.Second), ports.Settlement{Ref: refOf(before), Step: domain.Step{State: domain.Handled}}),
		"Beat":   s.Beat(t.Context(), holder, time.Minute),
		"TakeUp": second(s.TakeUp(t.Context(), holder, func(string) bool { return true }, 1, time.Minute)),
		"Counts": second(s.Counts(t.Context())),
		"Ready":  s.Ready(t.Context()),
		"Replay": s.Replay(t.Context(), before.ID, "ann"),
	} {
		if !errors.Is(err, domain.ErrUnavailable) && !errors.Is(err, domain.ErrUnknown) {
			t.Errorf("%s without a server = %v; want ErrUnavailable", what, err)
		}
	}
	server.Start(t)
	if c := claim(within(t, 30*time.Second), s, receipt("before")); c.Err != nil || c.Won {
		t.Errorf("Claim of what was claimed before = won %t, %v; want lost", c.Won, c.Err)
	}
	page, err := s.Receipts(t.Context(), ports.Filter{})
	if err != nil {
		t.Fatalf("Receipts = %v; want nil", err)
	}
	for _, r := range page.Receipts {
		if r.Key.EventID != "before" {
			t.Errorf("%q was stored, though it was told that it is not", r.Key.EventID)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestStalledStoreIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: server.Database(t).DSN, Migrate: true}
	s := open(t, c)
	if c := claim(t.Context(), s, receipt("before")); !c.Won {
		t.Fatalf("Claim = %v; want won", c.Err)
	}
	server.Stall(t)
	var wg sync.WaitGroup
	late := make([]domain.Receipt, 8)
	for i := range late {
		late[i] = receipt(fmt.Sprintf("late %d", i))
		wg.Go(func() {
			begun := time.Now()
			c := claim(within(t, 300*time.Millisecond), s, late[i])
			if !errors.Is(c.Err, domain.ErrUnknown) && !errors.Is(c.Err, domain.ErrUnavailable) {
				t.Errorf("Claim of a stalled server = won %t, %v; want ErrUnknown or ErrUnavailable", c.Won, c.Err)
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("Claim took %s; want the end of its context", took)
			}
		})
	}
	wg.Wait()
	server.Resume(t)
	for _, r := range late { // whatever became of it, it is the caller's
		if c := claim(within(t, 30*time.Second), s, r); c.Err != nil || !c.Won || c.Receipt.ID != r.ID {
			t.Errorf("Claim after the stall = won %t, %v; want won", c.Won, c.Err)
		}
	}
}

func TestKilledServerKeepsWhatWasAnswered(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t)
	c := sqlstore.Config{Dialect: migrations.Postgres, DSN: server.Database(t).DSN, Migrate: true}
	s := open(t, c)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		won    []string
		refuse []string
		enough = make(chan struct{})
		once   sync.Once
	)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r := receipt(fmt.Sprintf("Ev%d-%d", w, i))
				bounded, done := context.WithTimeout(ctx, 500*time.Millisecond)
				c := claim(bounded, s, r)
				done()
				mu.Lock()
				switch {
				case c.Won:
					won = append(won, r.ID)
				case errors.Is(c.Err, domain.ErrUnavailable):
					refuse = append(refuse, r.ID)
				case !errors.Is(c.Err, domain.ErrUnknown):
					t.Errorf("Claim = lost, %v; want won, ErrUnavailable or ErrUnknown", c.Err)
				}
				if len(won) > 300 {
					once.Do(func() { close(enough) })
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	server.Stop(t)
	server.Start(t)
	mu.Lock()
	before := len(won)
	mu.Unlock()
	deadline := time.Now().Add(30 * time.Second)
	for again := false; !again && time.Now().Before(deadline); {
		again = claim(within(t, time.Second), s, receipt("again "+uuid.NewString())).Won
	}
	cancel()
	wg.Wait()
	if before == 0 {
		t.Fatal("nothing was claimed before the server was killed")
	}
	stored := stored(t, s)
	for _, id := range won {
		if !stored[id] {
			t.Errorf("%s was answered won and is not there", id)
		}
	}
	for _, id := range refuse {
		if stored[id] {
			t.Errorf("%s was answered ErrUnavailable and is there", id)
		}
	}
}

// stored returns the ids of all receipts.
func stored(t *testing.T, s *sqlstore.Store) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for f := (ports.Filter{Limit: 1000}); ; {
		page, err := s.Receipts(t.Context(), f)
		if err != nil {
			t.Fatalf("Receipts = %v; want nil", err)
		}
		for _, r := range page.Receipts {
			all[r.ID] = true
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return all
		}
	}
}

func TestRoleThatTenantsCannotBeKeptApartUnderIsRefused(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t).Database(t)
	_, err := sqlstore.Open(t.Context(), sqlstore.Config{Dialect: migrations.Postgres, DSN: db.SuperDSN, Migrate: true})
	if err == nil {
		t.Fatal("Open as superuser = nil; want an error")
	}
	for _, want := range []string{"is a superuser", "CREATE ROLE admitone LOGIN NOSUPERUSER NOBYPASSRLS", "CREATE DATABASE admitone OWNER admitone"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Open as superuser = %v; want it to tell %q", err, want)
		}
	}
	// nothing was made that the right role would then not own
	open(t, sqlstore.Config{Dialect: migrations.Postgres, DSN: db.DSN, Migrate: true})
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://admitone:hunter2@[::1/x", "postgres://admitone:hunter2@127.0.0.1:1/x?connect_timeout=1"} {
		_, err := sqlstore.Open(within(t, 10*time.Second), sqlstore.Config{Dialect: migrations.Postgres, DSN: dsn})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Open = %v; want an error without the password", err)
		}
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []sqlstore.Config{liteConfig(t), pgConfig(t)} {
		s := mustOpen(t, c)
		var wg sync.WaitGroup
		won := make([]bool, 64)
		batch := make([]domain.Receipt, len(won))
		for i := range batch {
			batch[i] = receipt(fmt.Sprint(i))
			wg.Go(func() {
				c := claim(t.Context(), s, batch[i])
				won[i] = c.Won
				if !c.Won && !errors.Is(c.Err, domain.ErrUnavailable) {
					t.Errorf("Claim while closing = %v; want won or ErrUnavailable", c.Err)
				}
			})
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		wg.Wait()
		all := stored(t, open(t, c))
		for i, r := range batch {
			if all[r.ID] != won[i] {
				t.Errorf("%s: claim %d answered won %t and is stored %t", c.Dialect, i, won[i], all[r.ID])
			}
		}
	}
}

// A begin waits for an earlier event of its conversation; the connection is cut while the store
// reads what kept it; and by its next try that event has ended. What the first try read, or could
// not read, is not the answer to the second.
// A begin whose first try is on a network that keeps it is told to wait, and then that arrives. Whoever
// asks again in doubt is told that it is his own.
func TestBeginThatArrivesAfterItWasToldToWaitIsNotFenced(t *testing.T) {
	t.Parallel()
	c := pgConfig(t)
	direct := open(t, c)
	p := newProxy(t, c.DSN)
	c.DSN, c.Migrate = p.DSN, false
	s := open(t, c)
	earlier, later := receipt("earlier"), receipt("later")
	later.Conversation = earlier.Conversation
	for _, r := range []domain.Receipt{earlier, later} {
		if got := claim(t.Context(), direct, r); !got.Won {
			t.Fatal(got.Err)
		}
	}
	n, err := direct.Begin(t.Context(), refOf(earlier), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	earlier.Attempt = n
	toServer, left := cutsRequests(1)
	p.set(toServer, nil)
	ctx := within(t, 20*time.Second)
	if _, err := s.Begin(ctx, refOf(later), time.Minute); !errors.Is(err, ports.ErrWaits) || !errors.Is(err, domain.ErrUnknown) || left() != 0 {
		t.Fatalf("Begin whose first try may yet arrive = %v; want ErrWaits, and in doubt", err)
	}
	if err := direct.Settle(ctx, ports.Settlement{Ref: refOf(earlier), Step: domain.Step{State: domain.Handled}}); err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Begin(ctx, refOf(later), time.Minute); err != nil { // as the first try would
		t.Fatal(err)
	}
	ref := refOf(later)
	if _, err := s.Begin(ctx, ref, time.Minute); !errors.Is(err, domain.ErrFenced) {
		t.Errorf("Begin of who has no doubt = %v; want ErrFenced", err)
	}
	ref.Doubt = true
	if n, err := s.Begin(ctx, ref, time.Minute); err != nil || n != 1 {
		t.Errorf("Begin in doubt = %d, %v; want the first attempt", n, err)
	}
}

func TestBeginThatIsCarriedOutAtTheSecondTryIsNotFenced(t *testing.T) {
	t.Parallel()
	c := pgConfig(t)
	direct := open(t, c)
	p := newProxy(t, c.DSN)
	c.DSN, c.Migrate = p.DSN, false
	s := open(t, c)
	earlier, later := receipt("earlier"), receipt("later")
	later.Conversation = earlier.Conversation
	for _, r := range []domain.Receipt{earlier, later} {
		if got := claim(t.Context(), direct, r); !got.Won {
			t.Fatal(got.Err)
		}
	}
	n, err := direct.Begin(t.Context(), refOf(earlier), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	earlier.Attempt = n
	var once sync.Once
	cuts := 0
	p.set(func(_ *link, m message) (v verdict) {
		v = pass
		if m.kind == 'P' && bytes.Contains(m.body, []byte("r.state, r.holder, r.attempt")) {
			once.Do(func() {
				v = cut
				cuts++
				if err := direct.Settle(t.Context(), ports.Settlement{Ref: refOf(earlier), Step: domain.Step{State: domain.Handled}}); err != nil {
					t.Errorf("Settle = %v; want nil", err)
				}
			})
		}
		return v
	}, nil)
	if n, err := s.Begin(within(t, 20*time.Second), refOf(later), time.Minute); err != nil || n != 1 {
		t.Errorf("Begin = %d, %v; want the first attempt", n, err)
	}
	if cuts != 1 {
		t.Errorf("the connection was cut %d times; want once", cuts)
	}
}
