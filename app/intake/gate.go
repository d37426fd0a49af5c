package intake

import (
	"cmp"
	"net/http"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

// shut returns why an authentic delivery to in is turned away: "paused", "rate_limited", or ""
// if it is let in. Of no installation nothing is turned away.
func (e *Engine) shut(in *Installation) string {
	switch {
	case in == nil:
		return ""
	case in.Paused:
		return "paused"
	case !in.allows():
		return "rate_limited"
	}
	return ""
}

// turnedAway is the answer to an authentic delivery that is not looked at: one which makes the
// vendor come again.
func turnedAway(d door, why string) ports.Answer {
	status := http.StatusServiceUnavailable
	if why == "rate_limited" {
		status = cmp.Or(d.channel.Vendor.Busy, status)
	}
	return ports.Answer{Status: status, RetryAfter: d.channel.Vendor.RetryAfter, Verdict: string(domain.Refused)}
}
