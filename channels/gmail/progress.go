package gmail

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

const (
	// overlap is how long a change is looked for again: one may show in the history some time
	// after a later one was told (github.com/openclaw/gogcli/issues/379).
	overlap = 90 * time.Second
	// margin is how much further back than the last complete round a mailbox is listed.
	margin = 10 * time.Minute
	// maxSeen bounds the messages that are known to be done with. One that falls out is fetched
	// once more, and is a duplicate then.
	maxSeen = 3000
	// maxDone is how many of the last messages of a listing are remembered, to go on from: some
	// of them may be deleted meanwhile.
	maxDone = 20
)

// How long a message that can't be fetched holds the checkpoint, before it is given up. What is
// held up by that is the checkpoint alone: other mail is taken in.
const (
	triesToGiveUp   = 5
	refusedToGiveUp = 10 * time.Minute // Gmail has nothing against the mailbox, and this message is no mail
	failedToGiveUp  = 24 * time.Hour   // it may be Gmail's own trouble
	// goneAfter is when a message that is not there is believed to be deleted. Just after its
	// arrival a message may not be there yet (github.com/byeokim/gmailpush/issues/10).
	goneAfter = 10 * time.Second
)

// A progress is where a mailbox stands: a checkpoint, taken apart.
type progress struct {
	generation int64
	start      historyID // everything up to it is durable
	state
}

// A state is the rest of a checkpoint.
type state struct {
	// Marks are historyIds that were the mailbox's when everything up to them had been read, but
	// not long enough ago to rely on it. Oldest first.
	Marks []mark `json:"marks,omitempty"`
	// Seen has messages that are done with, by the historyId up to which that holds.
	Seen map[string]historyID `json:"seen,omitempty"`
	// Complete is when a round began last that read the history to its end, in seconds.
	Complete int64 `json:"complete,omitempty"`
	// Listing is there while the mailbox is to be listed.
	Listing *listing `json:"listing,omitempty"`
	// Trouble has messages that could not be fetched.
	Trouble map[string]trouble `json:"trouble,omitempty"`
}

type mark struct {
	At      int64     `json:"at"` // seconds
	History historyID `json:"history"`
}

// A listing is the way over a part of the history that Google has forgotten.
type listing struct {
	After     int64    `json:"after"`                // messages received since, in seconds
	NotBefore int64    `json:"not_before,omitempty"` // when to list, in seconds
	Begun     int64    `json:"begun"`                // when the history was begun anew
	Again     bool     `json:"again,omitempty"`      // the second look, for what showed late
	Done      []string `json:"done,omitempty"`       // the last messages done with, oldest first
}

type trouble struct {
	Since int64 `json:"since"` // seconds
	Tries int   `json:"tries"`
}

func readProgress(c domain.Checkpoint) (*progress, error) {
	p := &progress{generation: c.Generation, start: historyID(c.Position)}
	if c.State != "" {
		if err := json.Unmarshal([]byte(c.State), &p.state); err != nil {
			return nil, fmt.Errorf("the checkpoint can't be read: %w", err)
		}
	}
	if p.Seen == nil {
		p.Seen = map[string]historyID{}
	}
	if p.Trouble == nil {
		p.Trouble = map[string]trouble{}
	}
	return p, nil
}

// knows reports whether nothing has happened to a message since it was done with. That it is told
// of again is nothing; that its labels changed may make it one to take.
func (p *progress) knows(c candidate) bool {
	at, ok := p.Seen[c.id]
	return ok && at >= c.relabelled
}

// done notes that a message is done with up to a historyId.
func (p *progress) done(id string, at historyID) {
	p.Seen[id] = max(at, p.Seen[id])
	delete(p.Trouble, id)
}

// advance makes the history be read from a later change on.
func (p *progress) advance(to historyID) {
	if to <= p.start {
		return
	}
	p.start = to
	maps.DeleteFunc(p.Seen, func(_ string, at historyID) bool { return at <= to })
	p.Marks = slices.DeleteFunc(p.Marks, func(m mark) bool { return m.History <= to })
}

// complete notes that a round has read the history to its end, at which the mailbox's was at.
func (p *progress) complete(now time.Time, at historyID) {
	p.Complete = now.Unix()
	for _, m := range slices.Backward(p.Marks) {
		if now.Sub(time.Unix(m.At, 0)) >= overlap {
			p.advance(m.History)
			break
		}
	}
	if at > p.start && (len(p.Marks) == 0 || at > p.Marks[len(p.Marks)-1].History) {
		p.Marks = append(p.Marks, mark{At: now.Unix(), History: at})
	}
	maps.DeleteFunc(p.Trouble, func(_ string, t trouble) bool { return now.Sub(time.Unix(t.Since, 0)) > 2*failedToGiveUp })
}

// beginAnew makes the history be read from at on, and the mailbox be listed as far back as
// the last complete round.
func (p *progress) beginAnew(now time.Time, at historyID) {
	after := now.Unix()
	if p.Complete > 0 {
		after = p.Complete
	}
	after -= int64(margin / time.Second)
	if p.Listing != nil && p.Listing.After < after {
		after = p.Listing.After // the listing before was not finished
	}
	p.generation++
	p.start, p.Marks = at, nil
	p.Listing = &listing{After: after, Begun: now.Unix()}
}

// bound forgets what has been known for longest, if there is too much.
func (p *progress) bound() {
	if len(p.Seen) <= maxSeen {
		return
	}
	ids := slices.SortedFunc(maps.Keys(p.Seen), func(a, b string) int { return cmp.Compare(p.Seen[a], p.Seen[b]) })
	for _, id := range ids[:len(ids)-maxSeen] {
		delete(p.Seen, id)
	}
}

// fails notes that a message could not be fetched, and reports whether it has failed for long
// enough to give it up.
func (p *progress) fails(id string, now time.Time, after time.Duration) bool {
	t, ok := p.Trouble[id]
	if !ok {
		t.Since = now.Unix()
	}
	t.Tries++
	p.Trouble[id] = t
	return t.Tries >= triesToGiveUp && now.Sub(time.Unix(t.Since, 0)) >= after
}

// misses notes that a message was not there, and reports whether that is final.
func (p *progress) misses(id string, now time.Time) bool {
	t, ok := p.Trouble[id]
	if !ok {
		p.Trouble[id] = trouble{Since: now.Unix(), Tries: 1}
		return false
	}
	return now.Sub(time.Unix(t.Since, 0)) >= goneAfter
}

// save keeps p as the checkpoint of the round.
func (p *progress) save(ctx context.Context, r channels.Round) error {
	p.bound()
	text, err := json.Marshal(p.state)
	if err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	return r.Save(ctx, domain.Checkpoint{Generation: p.generation, Position: uint64(p.start), State: string(text)})
}
