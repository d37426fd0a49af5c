package whatsappcloud

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/admitone/admitone/channels/payload"
	"github.com/admitone/admitone/domain"
)

// The lists in the value of the field messages. Each element is an event.
const (
	messages = "messages"
	statuses = "statuses"
	failures = "errors"
)

var lists = []string{messages, statuses, failures}

// A part is one event's share of a delivery: an element of a list, or a change that holds no
// list, or an entry that holds no changes.
type part struct {
	*change
	list string // messages, statuses or errors; empty if the part is the change or entry whole
	item gjson.Result
}

// A change is an element of entry[].changes[], with what is around it.
type change struct {
	entry gjson.Result
	whole gjson.Result // does not exist if the entry holds no changes
	value gjson.Result // likewise
	items int          // elements of its lists

	// What payloads have in common is made once: the time that a delivery takes is to grow
	// with its length and no faster.
	around   string // what stands before whole
	head     string // what stands before an item; made with the first payload
	contacts []contact
}

// A contact is an element of value.contacts: who a message is from, or a status about.
type contact struct {
	waID, userID, raw string
}

// parse returns body as a delivery. Keys count in their exact case, and of two equal ones
// the first.
func parse(body []byte) (gjson.Result, error) {
	// Not gjson.Valid: it accepts nesting so deep that encoding/json can't write it again.
	if !json.Valid(body) {
		return gjson.Result{}, fmt.Errorf("%w: the body is not JSON", domain.ErrUnreadable)
	}
	root := gjson.ParseBytes(body)
	if !payload.Member(root, "entry").IsArray() {
		return gjson.Result{}, fmt.Errorf("%w: there is no list of entries", domain.ErrUnreadable)
	}
	return root, nil
}

// parts yields the events in a delivery, in their order.
func parts(root gjson.Result) iter.Seq[part] {
	return func(yield func(part) bool) {
		head := "{" + payload.Without(root, "entry") + `"entry":[`
		payload.Member(root, "entry").ForEach(func(_, entry gjson.Result) bool {
			changes := payload.Member(entry, "changes")
			if !changes.IsArray() {
				return yield(part{change: &change{entry: entry, around: head}, item: entry})
			}
			around := head + "{" + payload.Without(entry, "changes") + `"changes":[`
			more := true
			changes.ForEach(func(_, whole gjson.Result) bool {
				c := &change{entry: entry, whole: whole, value: payload.Member(whole, "value"), around: around}
				more = c.parts(yield)
				return more
			})
			return more
		})
	}
}

// parts yields the events in c and reports whether more are wanted.
func (c *change) parts(yield func(part) bool) bool {
	if !c.divisible() {
		return yield(part{change: c, item: c.whole})
	}
	var items []part
	for _, list := range lists {
		v := payload.Member(c.value, list)
		if !v.IsArray() {
			continue // ForEach would yield a value that is no list
		}
		v.ForEach(func(_, item gjson.Result) bool {
			items = append(items, part{change: c, list: list, item: item})
			return true
		})
	}
	c.items = len(items)
	for _, p := range items {
		if !yield(p) {
			return false
		}
	}
	return true
}

// divisible reports whether c is of the field messages and holds at least one of its lists,
// and no list that is none.
func (c *change) divisible() bool {
	if payload.TextAt(c.whole, "field") != "messages" {
		return false
	}
	found := false
	for _, list := range lists {
		v := payload.Member(c.value, list)
		if v.IsArray() {
			found = true
		} else if v.Exists() && v.Type != gjson.Null {
			return false
		}
	}
	return found
}

// payload returns the delivery as Meta would have sent it for p alone: all that stood around
// the item, without the items beside it and the contacts that are not its own.
func (p part) payload() []byte {
	switch {
	case !p.whole.Exists():
		return []byte(p.around + p.item.Raw + "]}")
	case p.list == "":
		return []byte(p.around + p.item.Raw + "]}]}")
	}
	p.prepare()
	body := make([]byte, 0, len(p.head)+len(p.item.Raw)+256)
	body = append(body, p.head...)
	if own := p.ownContacts(); len(own) > 0 {
		body = append(body, `"contacts":[`...)
		for i, c := range own {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, c.raw...)
		}
		body = append(body, "],"...)
	}
	body = append(body, `"`+p.list+`":[`...)
	body = append(body, p.item.Raw...)
	return append(body, "]}}]}]}"...)
}

func (c *change) prepare() {
	if c.head != "" {
		return
	}
	apart := lists
	if all := payload.Member(c.value, "contacts"); all.IsArray() {
		apart = append(slices.Clone(lists), "contacts")
		all.ForEach(func(_, v gjson.Result) bool {
			c.contacts = append(c.contacts, contact{payload.TextAt(v, "wa_id"), payload.TextAt(v, "user_id"), v.Raw})
			return true
		})
	}
	c.head = c.around + "{" + payload.Without(c.whole, "value") + `"value":{` + payload.Without(c.value, apart...)
}

// ownContacts returns the contacts of the people that p names. Of a change with one item they
// are all of them, since wa_id may be another spelling of the number than the item's.
func (p part) ownContacts() []contact {
	if p.items == 1 {
		return p.contacts
	}
	var own []contact
	people := p.people()
	for _, c := range p.contacts {
		if c.waID != "" && slices.Contains(people, c.waID) || c.userID != "" && slices.Contains(people, c.userID) {
			own = append(own, c)
		}
	}
	return own
}

// people returns the ids by which p names its sender or recipient, without the empty ones.
func (p part) people() []string {
	var ids []string
	for _, key := range []string{
		"from", "from_user_id", "recipient_id", "recipient_user_id",
		"recipient_participant_id", "participant_recipient_id", "recipient_participant_user_id",
	} {
		if id := payload.TextAt(p.item, key); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}
