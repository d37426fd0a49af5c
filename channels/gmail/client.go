package gmail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/admitone/admitone/channels"
	"github.com/admitone/admitone/domain"
)

// maxAnswer bounds an answer: a mail of 50 MB, the most that Gmail receives
// (https://support.google.com/a/answer/1366776), in base64 and with room.
const maxAnswer = 80 << 20

// pageSize is the most that Gmail gives at once.
const pageSize = "500"

// A client makes the calls of a round, each once: what to do about a failed one is for the
// caller of the round. Safe for concurrent use.
type client struct {
	http   *http.Client
	base   string
	tokens *tokens
}

// A historyID is the number of a change of the mailbox. Google writes it as a JSON string.
type historyID uint64

// UnmarshalJSON implements json.Unmarshaler.
func (h *historyID) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseUint(strings.Trim(string(b), `"`), 10, 64)
	if err != nil {
		return errors.New("a historyId is no number of 64 bits")
	}
	*h = historyID(n)
	return nil
}

// A message is one of the mailbox. LabelIDs and Raw are there as far as they were asked for.
type message struct {
	ID           string    `json:"id"`
	LabelIDs     []string  `json:"labelIds"`
	HistoryID    historyID `json:"historyId"`
	InternalDate string    `json:"internalDate"` // ms since 1970, of when Google accepted the mail
	Raw          string    `json:"raw"`
}

func (m message) received() time.Time {
	ms, err := strconv.ParseInt(m.InternalDate, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// A labelChange is a change of a message's labels.
type labelChange struct {
	Message  message  `json:"message"`
	LabelIDs []string `json:"labelIds"` // that were added or removed
}

// A historyPage is part of the changes since a historyId. HistoryID is that of the mailbox now.
type historyPage struct {
	History []struct {
		ID            historyID     `json:"id"`
		MessagesAdded []labelChange `json:"messagesAdded"` // without LabelIDs of their own
		LabelsAdded   []labelChange `json:"labelsAdded"`
		LabelsRemoved []labelChange `json:"labelsRemoved"`
	} `json:"history"`
	NextPageToken string    `json:"nextPageToken"`
	HistoryID     historyID `json:"historyId"`
}

const historyFields = "history(id,messagesAdded(message(id,labelIds)),labelsAdded(message(id,labelIds),labelIds)," +
	"labelsRemoved(message(id,labelIds),labelIds)),nextPageToken,historyId"

// history returns the page behind token of the changes since start, of all labels: a filter
// may have archived a mail before anybody saw it. errForgotten: Google knows start no more.
func (c *client) history(ctx context.Context, start historyID, token string) (historyPage, error) {
	q := url.Values{
		"startHistoryId": {strconv.FormatUint(uint64(start), 10)}, "maxResults": {pageSize}, "fields": {historyFields},
		"historyTypes": {"messageAdded", "labelAdded", "labelRemoved"},
	}
	if token != "" {
		q.Set("pageToken", token)
	}
	var page historyPage
	err := c.call(ctx, "/history", q, &page)
	if a, ok := errors.AsType[*answerError](err); ok && a.status == http.StatusNotFound {
		return page, errForgotten
	}
	if err != nil {
		return page, fmt.Errorf("read the history: %w", err)
	}
	return page, nil
}

var errForgotten = errors.New("google has forgotten the checkpoint")

// list returns the page behind token of the ids of messages that query selects, newest first.
func (c *client) list(ctx context.Context, query, token string) (ids []string, next string, err error) {
	q := url.Values{"maxResults": {pageSize}, "q": {query}, "fields": {"messages(id),nextPageToken"}}
	if token != "" {
		q.Set("pageToken", token)
	}
	var page struct {
		Messages      []message `json:"messages"`
		NextPageToken string    `json:"nextPageToken"`
	}
	if err := c.call(ctx, "/messages", q, &page); err != nil {
		return nil, "", fmt.Errorf("list messages: %w", err)
	}
	ids = make([]string, len(page.Messages))
	for i, m := range page.Messages {
		ids[i] = m.ID
	}
	return ids, page.NextPageToken, nil
}

// listAll returns the ids of all messages that query selects, newest first.
func (c *client) listAll(ctx context.Context, query string) ([]string, error) {
	var all []string
	for token := ""; ; {
		ids, next, err := c.list(ctx, query, token)
		if err != nil {
			return nil, err
		}
		all = append(all, ids...)
		if token = next; token == "" {
			return all, nil
		}
	}
}

// get returns a message: "raw", or "minimal" without its text.
func (c *client) get(ctx context.Context, id, format string) (message, error) {
	var m message
	err := c.call(ctx, "/messages/"+url.PathEscape(id),
		url.Values{"format": {format}, "fields": {"id,labelIds,historyId,internalDate,raw"}}, &m)
	return m, err
}

// current returns the historyId of the mailbox now.
func (c *client) current(ctx context.Context) (historyID, error) {
	var profile struct {
		HistoryID historyID `json:"historyId"`
	}
	err := c.call(ctx, "/profile", url.Values{"fields": {"historyId"}}, &profile)
	if a, ok := errors.AsType[*answerError](err); ok && a.status == http.StatusForbidden && errors.Is(err, channels.ErrRevoked) {
		// gmail.messages.readonly, which is enough for all other calls, does not cover this one
		return c.newest(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("read the profile: %w", err)
	}
	if profile.HistoryID == 0 {
		return 0, errors.New("read the profile: it has no historyId")
	}
	return profile.HistoryID, nil
}

// newest returns the historyId of the newest message.
func (c *client) newest(ctx context.Context) (historyID, error) {
	ids, _, err := c.list(ctx, "", "")
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, errors.New("the mailbox is empty, and its profile may not be read: there is nothing to begin from yet")
	}
	m, err := c.get(ctx, ids[0], "minimal")
	if err != nil {
		return 0, fmt.Errorf("read the newest message: %w", err)
	}
	return m.HistoryID, nil
}

// call asks for path and decodes the answer. A token that is refused is replaced once.
func (c *client) call(ctx context.Context, path string, q url.Values, into any) error {
	token, err := c.tokens.get(ctx, nil)
	if err != nil {
		return err
	}
	err = c.try(ctx, token, path, q, into)
	if a, ok := errors.AsType[*answerError](err); !ok || a.status != http.StatusUnauthorized {
		return err
	}
	if token, err = c.tokens.get(ctx, token); err != nil {
		return err
	}
	return c.try(ctx, token, path, q, into)
}

func (c *client) try(ctx context.Context, token *oauth2.Token, path string, q url.Values, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path+"?"+q.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	token.SetAuthHeader(r)
	resp, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("%w: %w", domain.ErrUnavailable, withoutURL(err))
	}
	defer resp.Body.Close() //nolint:errcheck // it was read only
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: read the answer: %w", domain.ErrUnavailable, err)
	case resp.StatusCode != http.StatusOK:
		return refusal(resp, body)
	case len(body) > maxAnswer:
		return fmt.Errorf("%w: the answer is longer than %d bytes", domain.ErrUnreadable, maxAnswer)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: the answer is not as documented", domain.ErrUnreadable) // the error would show a mail
	}
	return nil
}

// An answerError is an answer other than 200. Its text is made of nothing but numbers and words.
type answerError struct {
	status int
	reason string
	kind   error // what it means, if more than that this call failed
}

func (a *answerError) Error() string {
	text := "gmail answers " + strconv.Itoa(a.status)
	if a.reason != "" {
		text += " " + a.reason
	}
	return text
}

func (a *answerError) Unwrap() error { return a.kind }

// refusal tells what an answer means. The same status stands for quota and for permission: the
// reason tells (https://developers.google.com/workspace/gmail/api/guides/handle-errors).
func refusal(resp *http.Response, body []byte) error {
	var said struct {
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &said) // without it the status must do
	a := &answerError{status: resp.StatusCode}
	if len(said.Error.Errors) > 0 {
		a.reason = word(said.Error.Errors[0].Reason)
	}
	wait := max(retryAfter(resp.Header), retryAt(said.Error.Message))
	switch {
	case a.status == http.StatusTooManyRequests:
		return &channels.BusyError{After: max(wait, 10*time.Second), Err: a}
	case a.status == http.StatusForbidden && (a.reason == "rateLimitExceeded" || a.reason == "userRateLimitExceeded" || a.reason == "quotaExceeded"):
		return &channels.BusyError{After: max(wait, 10*time.Second), Err: a}
	case a.status == http.StatusForbidden && a.reason == "dailyLimitExceeded":
		return &channels.BusyError{After: max(wait, time.Hour), Err: a}
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		a.kind = channels.ErrRevoked
	case a.status >= 500:
		a.kind = domain.ErrUnavailable
		if wait > 0 {
			return &channels.BusyError{After: wait, Err: a}
		}
	}
	return a
}

// maxWait bounds what an answer may ask for.
const maxWait = 6 * time.Hour

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxWait)
}

var retryTime = regexp.MustCompile(`Retry after (\d{4}-\d\d-\d\dT[0-9:.]+Z)`)

// retryAt reads the time that some refusals name in their text.
func retryAt(message string) time.Duration {
	m := retryTime.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	at, err := time.Parse(time.RFC3339Nano, m[1])
	if err != nil {
		return 0
	}
	return min(max(0, time.Until(at)), maxWait)
}

var wordForm = regexp.MustCompile(`^[A-Za-z_]{1,40}$`)

// word returns s if it is one word, as reasons are, so that nothing else finds its way into a log.
func word(s string) string {
	if wordForm.MatchString(s) {
		return s
	}
	return ""
}

// withoutURL returns err without the address, which holds a query.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func isNetwork(err error) bool {
	_, isURL := errors.AsType[*url.Error](err)
	var isNet net.Error
	return isURL || errors.As(err, &isNet) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
