package baseline_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/admitone/admitone/app/bench/baseline"
	"github.com/admitone/admitone/app/bench/load"
)

func TestLimitAnswersOnlyWhatIsAuthentic(t *testing.T) {
	t.Parallel()
	const secret, account = "0123456789abcdef0123456789abcdef", "T0BENCH01"
	h, err := baseline.Limit(secret, account)
	if err != nil {
		t.Fatal(err)
	}
	wire := load.Requests(load.Job{Path: "/in/slack/bench", Secret: secret, Account: account, Events: 1}, time.Now())[0]
	for want, wire := range map[int][]byte{
		http.StatusOK:           wire,
		http.StatusUnauthorized: bytes.Replace(wire, []byte("pier nine"), []byte("pier five"), 1),
	} {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(wire)))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("answer = %d; want %d", w.Code, want)
		}
	}
}
