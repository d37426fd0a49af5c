package e2e_test

import (
	"net/http"
	"testing"
)

// BR-01, BR-05, BR-06: a retry is acknowledged as the first delivery was, whether the event
// is handled by then or still worked on.
func TestRetryOfAClaimedEventIsAcknowledgedAndNotDispatched(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, d *deployment) {
		in := d.serve(nil)
		working := make(chan struct{})
		d.app.reacts(func(dispatch) reaction { return reaction{until: working} })
		var sent []message
		var texts []string
		for _, to := range eachChannel {
			m := d.write(to)
			first := m.send(t, in)
			first.want(t, http.StatusOK, "admitted")
			d.app.awaitDispatches(t, len(sent)+1)
			retry := m.again(1).send(t, in)
			retry.want(t, http.StatusOK, "duplicate")
			if retry.body != first.body || retry.header.Get("Content-Type") != first.header.Get("Content-Type") {
				t.Errorf("%s: a retry is answered with %q, the first delivery with %q", to.channel, retry.body, first.body)
			}
			sent, texts = append(sent, m), append(texts, m.text)
		}
		close(working)
		d.rest()
		for _, m := range sent {
			m.again(2).send(t, in).want(t, http.StatusOK, "duplicate")
			m.again(3).send(t, in).want(t, http.StatusOK, "duplicate")
		}
		d.once(texts...)
	})
}
