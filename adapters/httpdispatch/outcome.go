package httpdispatch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"github.com/admitone/admitone/domain"
)

// outcomeOf returns what an answer of that status means.
func outcomeOf(status int) domain.Result {
	reason := "HTTP " + strconv.Itoa(status)
	switch {
	case status >= 200 && status < 300:
		return domain.Result{Outcome: domain.Taken}
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return domain.Result{Outcome: domain.Declined, Reason: reason}
	case status >= 300 && status < 500:
		return domain.Result{Outcome: domain.Rejected, Reason: reason}
	}
	// The rest of 5xx, and what is no final status at all.
	return domain.Result{Outcome: domain.Ambiguous, Reason: reason}
}

// failure returns what it means that there was no answer but err. The reasons are a closed
// set: an error's own text names addresses, and with them perhaps users and passwords.
func (s *sending) failure(err error) domain.Result {
	if s.certainlyNot() {
		return domain.Result{Outcome: domain.NotReceived, Reason: "not sent: " + why(err)}
	}
	return domain.Result{Outcome: domain.Ambiguous, Reason: "no answer: " + why(err)}
}

func why(err error) string {
	var (
		name      *net.DNSError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		cert      *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		network   net.Error
	)
	switch {
	case errors.Is(err, context.Canceled):
		return "given up"
	case errors.As(err, &name):
		return "name look-up failed"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &record), errors.As(err, &alert), errors.As(err, &cert), errors.As(err, &authority),
		errors.Is(err, http.ErrSchemeMismatch):
		return "TLS handshake failed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	}
	return "connection failed"
}
