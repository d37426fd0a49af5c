package gmail_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/admitone/admitone/channels/channeltest"
	"github.com/admitone/admitone/channels/email"
	"github.com/admitone/admitone/channels/gmail"
	"github.com/admitone/admitone/channels/gmail/gmailfake"
)

func TestChannelKeepsItsPromises(t *testing.T) {
	t.Parallel()
	channeltest.RunPoll(t, channeltest.PollSpec{Channel: gmail.New(), Start: start})
}

func start() channeltest.PollVendor {
	box := gmailfake.New()
	var calls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		box.ServeHTTP(w, r)
	}))
	fail := func(f gmailfake.Failure) {
		box.Fail(func(*http.Request) *gmailfake.Failure { return &f })
	}
	return channeltest.PollVendor{
		Credentials: credentials(s.URL, nil),
		Close:       s.Close,
		Put: func(name string) {
			box.Put(email.Simulated("ida", "desk@example.com", name, "", name, 0, begun))
		},
		Poison: func() { box.Put([]byte(`{"not": "a mail"}`)) },
		Forget: box.Forget,
		Revoke: func() { box.Revoke(true) },
		Fail: func(busy bool) {
			if busy {
				fail(gmailfake.Failure{Status: http.StatusTooManyRequests, Reason: "rateLimitExceeded"})
			} else {
				fail(gmailfake.Failure{Status: http.StatusInternalServerError, Reason: "backendError"})
			}
		},
		Heal:  func() { box.Fail(nil); box.Revoke(false) },
		Hang:  func() { fail(gmailfake.Failure{Hang: true}) },
		Calls: func() int { return int(calls.Load()) },
		Fetched: func() int {
			n := 0
			for _, times := range box.Fetches() {
				n += times
			}
			return n
		},
	}
}
