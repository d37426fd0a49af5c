// Package load sends signed Slack events to a server as fast as it answers, and measures how
// fast that is. All requests are made before the clock starts, and one thread drives every
// connection, so that the sender takes as little of the machine as possible from what it
// measures.
package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"
)

// A Job is one measurement. Each connection sends its next request when the one before is
// answered.
type Job struct {
	Addr        string // host:port
	Path        string
	Secret      string // signing secret
	Account     string // Slack workspace
	Connections int
	// Duration ends the job if the events have not.
	Duration time.Duration
	// First numbers the first event and Events says how many there are. Equal numbers are equal events.
	First, Events int
	// Conversations is over how many channels the events are spread in turn.
	Conversations int
	// Again starts over after the last event; without it the job ends there.
	Again bool
}

// A Result is what a job measured.
type Result struct {
	Start    time.Time     // when the first request was sent
	Elapsed  time.Duration // from then to the last answer
	CPU      time.Duration // what the sending process used meanwhile
	P50, P99 time.Duration // of the answers with status 200
	// Answers counts by verdict, or by status where that is not 200 or there is no verdict.
	Answers map[string]int
}

// OK returns how many answers had the status 200.
func (r Result) OK() int {
	n := 0
	for answer, count := range r.Answers {
		if len(answer) != 3 || answer == "200" {
			n += count
		}
	}
	return n
}

// Serve does the jobs that are on in, one JSON text each, until in ends. To out it writes for
// each one true when the requests are made and the clock starts, and then the result.
func Serve(in io.Reader, out io.Writer) error {
	jobs, results := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var j Job
		if err := jobs.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a job: %w", err)
		}
		requests := Requests(j, time.Now())
		if err := results.Encode(true); err != nil {
			return fmt.Errorf("tell that a job begins: %w", err)
		}
		r, err := run(j, requests)
		if err != nil {
			return err
		}
		if err := results.Encode(r); err != nil {
			return fmt.Errorf("tell a result: %w", err)
		}
	}
}

// Run does one job. It blocks until every request it sent is answered.
func Run(j Job) (Result, error) { return run(j, Requests(j, time.Now())) }

func run(j Job, requests [][]byte) (Result, error) {
	before := used()
	t, err := drive(j, requests)
	if err != nil {
		return Result{}, fmt.Errorf("send to %s: %w", j.Addr, err)
	}
	r := Result{Start: t.start, Elapsed: t.end.Sub(t.start), CPU: used() - before, Answers: t.answers}
	slices.Sort(t.latencies)
	if n := len(t.latencies); n > 0 {
		r.P50, r.P99 = t.latencies[n/2], t.latencies[min(n-1, n*99/100)]
	}
	return r, nil
}

// A tally is what the loop saw.
type tally struct {
	start, end time.Time
	latencies  []time.Duration // of the answers with status 200
	answers    map[string]int
}

// used returns the CPU time of this process so far.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // it fails only for arguments that these are not
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
