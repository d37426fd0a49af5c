package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func median[T float64 | time.Duration](of []T) T {
	s := slices.Sorted(slices.Values(of))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// medianOf returns the median of what f says of each.
func medianOf[S any, T float64 | time.Duration](of []S, f func(S) T) T {
	values := make([]T, len(of))
	for i, s := range of {
		values[i] = f(s)
	}
	return median(values)
}

// ratios returns the median of a's to b's, turn by turn: two turns of one round meet the
// same machine.
func ratios[S any](a, b []S, f func(S) float64) float64 {
	values := make([]float64, min(len(a), len(b)))
	for i := range values {
		values[i] = f(a[i]) / f(b[i])
	}
	return median(values)
}

// A target is a promise about a ratio, or a size.
type target struct {
	what     string
	measured float64
	byCPU    float64 // the ratio as CPU time per event says it; 0 if it says nothing
	unit     string
	want     float64
	atMost   bool
	note     bool // it is told, and no target
}

func (b *bench) promise(t target) { b.targets = append(b.targets, t) }

// table prints rows in columns, the numbers to the right.
func (b *bench) table(title string, rows [][]string) {
	fmt.Fprintf(b.out, "\n%s\n", title)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	width := 0
	for _, r := range rows {
		width = max(width, len([]rune(r[0])))
	}
	for _, r := range rows {
		// the first column to the left
		r[0] += strings.Repeat(" ", width-len([]rune(r[0])))
		fmt.Fprintf(w, "%s\t\n", strings.Join(r, "\t"))
	}
	_ = w.Flush() // what can't be printed can't be told either
}

func count(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }

func ratio(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }

func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds()*1e3, 'f', 2, 64)
}

func microseconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds()*1e6, 'f', 1, 64)
}

func rateOf(s sample) float64 { return s.rate }

// cheapness is the rate that a machine would have which does nothing else: the inverse of CPU time.
func cheapness(s sample) float64 { return 1 / s.cost.total().Seconds() }

func (b *bench) tellHTTP(stored string, all results) {
	rows := [][]string{{
		"conns  what", "200/s", "p50 ms", "p99 ms", "× L", "× O", "settled/s", "503 %", "commits", "µs CPU: server", "Postgres", "Redis", "sender",
	}}
	for _, connections := range b.connections {
		r := all[connections]
		for m := range measures {
			s := r[m]
			row := []string{
				fmt.Sprintf("%5d  %s", connections, m), count(medianOf(s, rateOf)),
				milliseconds(medianOf(s, func(s sample) time.Duration { return s.p50 })),
				milliseconds(medianOf(s, func(s sample) time.Duration { return s.p99 })),
				ratio(ratios(s, r[limit], rateOf)), "", "", "", "",
			}
			if o, ok := m.ordinary(); ok {
				row[5] = ratio(ratios(s, r[o], rateOf))
			}
			if m == firsts || m == firstsOpen {
				row[6] = count(medianOf(s, func(s sample) float64 { return s.settled }))
			}
			if refused := medianOf(s, func(s sample) float64 { return s.refused }); refused > 0 {
				row[7] = ratio(100 * refused)
			}
			if m != repeatsElsewhere && m != repeatsHere && m != repeatsOrdinary && m != limit {
				row[8] = ratio(medianOf(s, func(s sample) float64 { return s.commits }))
			}
			for _, part := range []func(sample) time.Duration{
				func(s sample) time.Duration { return s.cost.server }, func(s sample) time.Duration { return s.cost.postgres },
				func(s sample) time.Duration { return s.cost.redis }, func(s sample) time.Duration { return s.cost.sender },
			} {
				row = append(row, microseconds(medianOf(s, part)))
			}
			rows = append(rows, row)
		}
	}
	b.table("HTTP, signed Slack messages of 1.5 kB, "+stored+" receipts stored. L: Admitone's handler without any store;\n"+
		"O: an ordinary handler, its libraries' settings the defaults; T: the same, tuned.\n"+
		"200/s: answers; settled/s: events handed on and recorded as handled; commits and CPU time: per answer with 200.", rows)
	if r, ok := all[64]; ok {
		b.promiseHTTP(stored, r)
	}
}

func (b *bench) promiseHTTP(stored string, r *[measures][]sample) {
	settled := func(s sample) float64 { return s.settled }
	for _, p := range []struct {
		m      measure
		toL    float64
		toO    float64
		what   string
		of     func(sample) float64
		isNote bool
	}{
		{repeatsElsewhere, 0.75, 1.8, repeatsElsewhere.String(), rateOf, false},
		{repeatsHere, 0.75, 1.8, repeatsHere.String(), rateOf, false},
		{firsts, 0.2, 4, "first deliveries, answered", rateOf, false},
		{firsts, 0.2, 4, "first deliveries, settled", settled, true},
	} {
		o, _ := p.m.ordinary()
		against := func(to measure, name string, want float64) {
			values := make([]float64, len(r[p.m]))
			for i := range values {
				values[i] = p.of(r[p.m][i]) / r[to][i].rate
			}
			b.promise(target{
				what: fmt.Sprintf("%s, 64 connections, %s stored, × %s", p.what, stored, name), measured: median(values),
				byCPU: ratios(r[p.m], r[to], cheapness), want: want, note: p.isNote,
			})
		}
		against(limit, "L", p.toL)
		against(o, "O", p.toO)
		if p.m == firsts {
			against(firstsOpen, "without row-level security", 0.9)
			p.isNote = true
			against(firstsTuned, "T", 0)
		}
	}
}

func (b *bench) tellClaims(callers []int, claimed, inserted [][]claimRate, l lone) {
	rows := [][]string{{"callers", "claims/s", "pgbench inserts/s", "ratio", "µs CPU: claim", "insert"}}
	rate := func(r claimRate) float64 { return r.rate }
	cpu := func(r claimRate) time.Duration { return r.cost }
	for i, n := range callers {
		ratioOf := ratios(claimed[i], inserted[i], rate)
		rows = append(rows, []string{
			fmt.Sprintf("%7d", n), count(medianOf(claimed[i], rate)), count(medianOf(inserted[i], rate)), ratio(ratioOf),
			microseconds(medianOf(claimed[i], cpu)), microseconds(medianOf(inserted[i], cpu)),
		})
		if n == 64 {
			b.promise(target{
				what: "claims, 64 callers, × pgbench inserting row by row", measured: ratioOf, want: 2,
				byCPU: ratios(claimed[i], inserted[i], func(r claimRate) float64 { return 1 / r.cost.Seconds() }),
			})
		}
	}
	b.table("Claims alone (receipt and payload, committed), beside the same rows inserted one by one. CPU time is client's and Postgres'.", rows)
	claim, insert := median(l.claim), median(l.insert)
	fmt.Fprintf(b.out, "one at a time, turn by turn: claim %s ms, plain insert %s ms\n", milliseconds(claim), milliseconds(insert))
	b.promise(target{
		what: "a lone claim takes, × a plain insert", measured: claim.Seconds() / insert.Seconds(), want: 1.1, atMost: true,
	})
}

func (b *bench) tellFast(bytes float64, plain, pipelined []float64) {
	r := ratios(pipelined, plain, func(f float64) float64 { return f })
	b.table("Redis, "+strconv.Itoa(fastCallers)+" callers", [][]string{
		{"looks", "per second", "ratio"},
		{"one command a call", count(median(plain)), ""},
		{"the fast store", count(median(pipelined)), ratio(r)},
	})
	b.promise(target{what: "looks in Redis, 64 callers, × one command a call", measured: r, want: 2.5})
	b.promise(target{what: "memory of a key in Redis", measured: bytes, unit: "B", want: 128, atMost: true})
}

func (b *bench) tellMemory(each float64, body int) {
	b.table("Memory, application stopped", [][]string{
		{"resident per queued event", "of that its payload"}, {count(each) + " B", count(float64(body)) + " B"},
	})
	b.promise(target{what: "memory of a queued event, beside its payload", measured: each - float64(body), unit: "B", want: 4096, atMost: true})
}

func (b *bench) tellUnique(digest, columns *uniqueness) {
	rows := [][]string{{"unique by", "rows/s", "index B/row", "WAL B/row"}}
	for _, u := range []*uniqueness{digest, columns} {
		rows = append(rows, []string{u.name, count(median(u.rates)), count(u.bytes), count(u.wal / u.got)})
	}
	b.table(fmt.Sprintf("Uniqueness, %d rows stored, batches of %d", b.uniqueness, batchRows), rows)
	b.promise(target{
		what: "rows/s with unique digests, × with unique columns", measured: ratios(digest.rates, columns.rates, func(f float64) float64 { return f }),
		note: true,
	})
}

func (b *bench) tellTargets() {
	rows := [][]string{{"target", "wanted", "measured", "by CPU", ""}}
	for _, t := range b.targets {
		verdict := "pass"
		if t.atMost && t.measured > t.want || !t.atMost && t.measured < t.want {
			verdict = "miss"
		}
		format := ratio
		if t.unit != "" {
			format = func(f float64) string { return count(f) + " " + t.unit }
		}
		sign := "≥ "
		if t.atMost {
			sign = "≤ "
		}
		row := []string{t.what, sign + format(t.want), format(t.measured), "", verdict}
		if t.byCPU > 0 {
			row[3] = ratio(t.byCPU)
		}
		if t.note {
			row[1], row[4] = "", ""
		}
		rows = append(rows, row)
	}
	b.table("Targets. By CPU: the ratio that CPU time per event says, which others' work on this machine changes little.", rows)
}
