package gmailfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

type object = map[string]any

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(v) // a caller that is gone is not answered
}

func refuse(w http.ResponseWriter, f Failure) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	w.WriteHeader(f.Status)
	domain := "global"
	if strings.HasSuffix(f.Reason, "Exceeded") {
		domain = "usageLimits"
	}
	answer(w, object{"error": object{
		"code": f.Status, "message": f.Message, "errors": []object{{"message": f.Message, "domain": domain, "reason": f.Reason}},
	}})
}

var (
	notFound = Failure{Status: http.StatusNotFound, Reason: "notFound", Message: "Requested entity was not found."}
	noToken  = Failure{Status: http.StatusUnauthorized, Reason: "authError", Message: "Invalid Credentials"}
)

func invalid(what string) Failure {
	return Failure{Status: http.StatusBadRequest, Reason: "invalidArgument", Message: "Invalid " + what}
}

func (m *Mailbox) serveToken(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // what can't be read is no grant
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls["token"]++
	grant := r.PostForm.Get("grant_type")
	good := grant == "refresh_token" && r.PostForm.Get("refresh_token") == RefreshToken ||
		grant == "urn:ietf:params:oauth:grant-type:jwt-bearer" && strings.Count(r.PostForm.Get("assertion"), ".") == 2
	if m.revoked || !good {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		answer(w, object{"error": "invalid_grant", "error_description": "Token has been expired or revoked."})
		return
	}
	token := fmt.Sprintf("access-token-%d", m.calls["token"])
	m.tokens[token] = m.now().Add(m.lifetime)
	answer(w, object{"access_token": token, "expires_in": int(m.lifetime.Seconds()), "token_type": "Bearer"})
}

// guarded lets in who bears a token, unless the mailbox is to fail.
func (m *Mailbox) guarded(method string, serve func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.calls[method]++
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		until, ok := m.tokens[token]
		fail := m.fail
		good := ok && m.now().Before(until)
		m.mu.Unlock()
		if !good {
			refuse(w, noToken)
			return
		}
		if fail != nil {
			if f := fail(r); f != nil && f.Hang {
				<-r.Context().Done()
				return
			} else if f != nil {
				refuse(w, *f)
				return
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		serve(w, r)
	}
}

// known reports whether q asks for nothing but names.
func known(w http.ResponseWriter, r *http.Request, names ...string) bool {
	for name := range r.URL.Query() {
		if name != "fields" && name != "alt" && name != "prettyPrint" && !slices.Contains(names, name) {
			refuse(w, invalid("parameter "+name))
			return false
		}
	}
	return true
}

func (m *Mailbox) serveProfile(w http.ResponseWriter, r *http.Request) {
	if known(w, r) {
		m.told++
		answer(w, object{"emailAddress": "desk@example.com", "messagesTotal": len(m.order), "historyId": number(m.last)})
	}
}

// size reads maxResults.
func (m *Mailbox) size(w http.ResponseWriter, r *http.Request) (n int, ok bool) {
	n = 100
	if s := r.URL.Query().Get("maxResults"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > 500 {
			refuse(w, invalid("maxResults"))
			return 0, false
		}
	}
	return min(n, m.page), true
}

// from reads a page token, which is good for the same question only.
func (m *Mailbox) from(w http.ResponseWriter, r *http.Request) (question string, from int, ok bool) {
	q := r.URL.Query()
	token := q.Get("pageToken")
	q.Del("pageToken")
	question = r.URL.Path + "?" + q.Encode()
	if token == "" {
		return question, 0, true
	}
	key, ok := m.pages[token]
	if !ok || key.what != question {
		refuse(w, invalid("pageToken"))
		return "", 0, false
	}
	return question, key.from, true
}

func (m *Mailbox) next(question string, from int) string {
	token := fmt.Sprintf("page-%d", len(m.pages)+1)
	m.pages[token] = pageKey{question, from}
	return token
}

func (m *Mailbox) serveHistory(w http.ResponseWriter, r *http.Request) {
	if !known(w, r, "startHistoryId", "historyTypes", "labelId", "maxResults", "pageToken") {
		return
	}
	q := r.URL.Query()
	start, err := strconv.ParseUint(q.Get("startHistoryId"), 10, 64)
	if err != nil {
		refuse(w, invalid("startHistoryId"))
		return
	}
	if start < m.oldest || !m.issued[start] {
		refuse(w, notFound)
		return
	}
	types := q["historyTypes"]
	for _, t := range types {
		if !slices.Contains([]string{"messageAdded", "messageDeleted", "labelAdded", "labelRemoved"}, t) {
			refuse(w, invalid("historyTypes"))
			return
		}
	}
	size, ok := m.size(w, r)
	if !ok {
		return
	}
	question, from, ok := m.from(w, r)
	if !ok {
		return
	}
	var found []object
	i := from
	for ; i < len(m.history) && len(found) < size; i++ {
		h := m.history[i]
		if h.id > start && !m.now().Before(h.visible) && (len(types) == 0 || slices.Contains(types, h.kind)) && m.hasLabel(h, q.Get("labelId")) {
			found = append(found, m.tell(h))
		}
		// now and then a page holds nothing and is not the last
		if m.page < 500 && i%97 == 96 && len(found) == 0 {
			i++
			break
		}
	}
	m.told++
	out := object{"historyId": number(m.last)}
	if len(found) > 0 { // otherwise there is no such key
		out["history"] = found
	}
	if i < len(m.history) {
		out["nextPageToken"] = m.next(question, i)
	}
	answer(w, out)
}

func (m *Mailbox) hasLabel(h record, label string) bool {
	x := m.messages[h.message]
	return label == "" || x != nil && slices.Contains(x.labels, label)
}

func (m *Mailbox) tell(h record) object {
	x := object{"id": h.message, "threadId": h.message}
	if msg := m.messages[h.message]; msg != nil && !h.withoutLabelID {
		x["labelIds"] = msg.labels
	}
	change := object{"message": x}
	if h.labels != nil {
		change["labelIds"] = h.labels
	}
	name := map[string]string{
		"messageAdded": "messagesAdded", "messageDeleted": "messagesDeleted", "labelAdded": "labelsAdded", "labelRemoved": "labelsRemoved",
	}[h.kind]
	return object{"id": number(h.id), "messages": []object{x}, name: []object{change}}
}

func (m *Mailbox) serveList(w http.ResponseWriter, r *http.Request) {
	if !known(w, r, "q", "labelIds", "includeSpamTrash", "maxResults", "pageToken") {
		return
	}
	selects, err := m.search(r.URL.Query().Get("q"))
	if err != nil {
		refuse(w, invalid(err.Error()))
		return
	}
	size, ok := m.size(w, r)
	if !ok {
		return
	}
	question, from, ok := m.from(w, r)
	if !ok {
		return
	}
	var found []object
	newestFirst := slices.Clone(m.order)
	slices.Reverse(newestFirst)
	i := from
	for ; i < len(newestFirst) && len(found) < size; i++ {
		x := m.messages[newestFirst[i]]
		hidden := slices.Contains(x.labels, "SPAM") || slices.Contains(x.labels, "TRASH")
		if (!hidden || r.URL.Query().Get("includeSpamTrash") == "true") && !m.now().Before(x.visible) && selects(x) {
			found = append(found, object{"id": x.id, "threadId": x.id})
		}
	}
	out := object{"resultSizeEstimate": len(found)}
	if len(found) > 0 {
		out["messages"] = found
	}
	if i < len(newestFirst) {
		out["nextPageToken"] = m.next(question, i)
	}
	answer(w, out)
}

// search understands after:, before:, label:, - and words of a mail, and nothing else.
func (m *Mailbox) search(q string) (func(*message) bool, error) {
	var all []func(*message) bool
	for term := range strings.FieldsSeq(q) {
		term, not := strings.CutPrefix(term, "-")
		operator, value, isOperator := strings.Cut(term, ":")
		var f func(*message) bool
		switch at, err := strconv.ParseInt(value, 10, 64); {
		case !isOperator:
			f = func(x *message) bool { return strings.Contains(strings.ToLower(string(x.raw)), strings.ToLower(term)) }
		case operator == "after" && err == nil:
			f = func(x *message) bool { return x.received.After(time.Unix(at, 0)) }
		case operator == "before" && err == nil:
			f = func(x *message) bool { return x.received.Before(time.Unix(at, 0)) }
		case operator == "label":
			f = func(x *message) bool { return slices.Contains(x.labels, strings.ToUpper(value)) }
		default:
			return nil, fmt.Errorf("search operator %s", operator)
		}
		all = append(all, func(x *message) bool { return f(x) != not })
	}
	return func(x *message) bool {
		return !slices.ContainsFunc(all, func(f func(*message) bool) bool { return !f(x) })
	}, nil
}

func (m *Mailbox) serveMessage(w http.ResponseWriter, r *http.Request) {
	if !known(w, r, "format", "metadataHeaders") {
		return
	}
	x := m.messages[r.PathValue("id")]
	if x == nil {
		refuse(w, notFound)
		return
	}
	out := object{
		"id": x.id, "threadId": x.id, "labelIds": x.labels, "historyId": number(x.changed),
		"internalDate": strconv.FormatInt(x.received.UnixMilli(), 10), "sizeEstimate": len(x.raw),
	}
	switch r.URL.Query().Get("format") {
	case "raw":
		m.fetched[x.id]++
		out["raw"] = x.encoded(m.fetched[x.id]%2 == 1)
	case "minimal":
	default:
		refuse(w, invalid("format: only raw and minimal are simulated"))
		return
	}
	answer(w, out)
}
