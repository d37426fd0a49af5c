package httpdispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/admitone/admitone/domain"
	"github.com/admitone/admitone/ports"
)

const (
	// DefaultTimeout is how long a dispatch may take unless the configuration says.
	DefaultTimeout = 10 * time.Second
	// DefaultWorkers is how many dispatches are expected at once unless the configuration says.
	DefaultWorkers = 64

	// drainBytes and drainTime bound what is read of an answer's body, which nobody wants:
	// it is read only so that the connection can be used again.
	drainBytes = 64 << 10
	drainTime  = time.Second
	// maxPooled is the largest buffer that is kept: a mail must not occupy its size for ever.
	maxPooled = 256 << 10
)

// Config is how a Dispatcher is made.
type Config struct {
	URL string // where events go whose Dispatch names no URL of its own; may be empty
	// Secrets are Standard Webhooks secrets, "whsec_" and base64. The first one signs; the
	// others are for applications that verify by the same list. Without any nothing is signed.
	Secrets []string
	Timeout time.Duration // of one dispatch, from dialling to the answer's header; 0 means DefaultTimeout
	Workers int           // dispatches expected at once: so many connections are kept open; 0 means DefaultWorkers
}

// A Dispatcher posts events to an application. Safe for concurrent use.
type Dispatcher struct {
	transport *http.Transport
	url       string
	signer    *standardwebhooks.Webhook // nil: unsigned
	timeout   time.Duration
}

var _ ports.Dispatcher = (*Dispatcher)(nil)

// New returns a dispatcher. It asks no network. An error says which part of c is unfit and
// holds no secret.
func New(c Config) (*Dispatcher, error) {
	d := &Dispatcher{url: c.URL, timeout: c.Timeout}
	if d.timeout == 0 {
		d.timeout = DefaultTimeout
	}
	if d.timeout < 0 {
		return nil, fmt.Errorf("http dispatch: timeout must be positive, is %s", c.Timeout)
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Workers < 0 {
		return nil, fmt.Errorf("http dispatch: workers must be positive, is %d", c.Workers)
	}
	if c.URL != "" {
		if err := checkURL(c.URL); err != nil {
			return nil, fmt.Errorf("http dispatch: %w", err)
		}
	}
	for i, secret := range c.Secrets {
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil || len(secret) <= len("whsec_") {
			return nil, fmt.Errorf("http dispatch: secret %d is not whsec_ and base64", i+1)
		}
		if i == 0 {
			d.signer = signer
		}
	}
	d.transport = transport(c.Workers)
	return d, nil
}

func checkURL(raw string) error {
	u, err := url.Parse(raw)
	// The error of Parse quotes its input, which may hold a password.
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("url must be http://host/path or https://host/path")
	}
	return nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Dispatch implements ports.Dispatcher.
func (d *Dispatcher) Dispatch(ctx context.Context, event ports.Dispatch) domain.Result {
	body, ok := buffers.Get().(*bytes.Buffer)
	if !ok {
		body = new(bytes.Buffer)
	}
	body.Reset()
	if err := writeEvent(body, event); err != nil {
		return domain.Result{Outcome: domain.Rejected, Reason: "event cannot be encoded"}
	}
	sent := new(sending)
	result := d.post(ctx, event, body.Bytes(), sent)
	// Until the request is written the transport may still be reading it, even after RoundTrip.
	if sent.complete.Load() && body.Cap() <= maxPooled {
		buffers.Put(body)
	}
	return result
}

func (d *Dispatcher) post(ctx context.Context, event ports.Dispatch, body []byte, sent *sending) domain.Result {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	target := event.URL
	if target == "" {
		target = d.url
	}
	if checkURL(target) != nil {
		return domain.Result{Outcome: domain.NotReceived, Reason: "no usable address"}
	}
	trace := &httptrace.ClientTrace{GotConn: sent.gotConn, WroteRequest: sent.wroteRequest}
	// The body is a type of its own, so that the request gets no GetBody: with one the
	// transport would send it again by itself.
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, target, onceReader{bytes.NewReader(body)})
	if err != nil {
		return domain.Result{Outcome: domain.NotReceived, Reason: "no usable address"}
	}
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", "Admitone")
	now := time.Now()
	r.Header.Set(standardwebhooks.HeaderWebhookID, event.ID)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	if d.signer != nil {
		signature, err := d.signer.Sign(event.ID, now, body)
		if err != nil {
			return domain.Result{Outcome: domain.NotReceived, Reason: "event cannot be signed"}
		}
		r.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	}
	if user := r.URL.User; user != nil {
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
	}
	// Not by a Client: a redirect is an answer like any other, and the event is not carried on
	// to a place that nobody configured.
	answer, err := d.transport.RoundTrip(r)
	if err != nil {
		return sent.failure(err)
	}
	defer answer.Body.Close() //nolint:errcheck // the status is what counts
	drain := time.AfterFunc(drainTime, cancel)
	_, _ = io.CopyN(io.Discard, answer.Body, drainBytes)
	drain.Stop()
	return outcomeOf(answer.StatusCode)
}

// Close gives up the connections that are not in use.
func (d *Dispatcher) Close() error {
	d.transport.CloseIdleConnections()
	return nil
}

// A onceReader can be read once: net/http does not know how to rewind it.
type onceReader struct{ io.Reader }

// A sending is what is known of one request on its way. The transport tells it from
// goroutines of its own.
type sending struct {
	conn     atomic.Pointer[countingConn]
	before   atomic.Int64 // bytes that conn had written when the request got it
	blind    atomic.Bool  // it got a connection that does not count
	complete atomic.Bool
}

func (s *sending) gotConn(info httptrace.GotConnInfo) {
	conn := counting(info.Conn)
	if conn == nil {
		s.blind.Store(true)
		return
	}
	s.before.Store(conn.written.Load())
	s.conn.Store(conn)
}

func (s *sending) wroteRequest(info httptrace.WroteRequestInfo) {
	if info.Err == nil {
		s.complete.Store(true)
	}
}

// certainlyNot reports that no byte of the request was handed to a connection.
func (s *sending) certainlyNot() bool {
	if s.blind.Load() {
		return false
	}
	conn := s.conn.Load()
	return conn == nil || conn.written.Load() == s.before.Load()
}
