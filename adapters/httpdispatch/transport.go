package httpdispatch

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// idleTime is how long a connection is kept without use. It is shorter than the
	// keep-alive of common application servers (gunicorn 2 s, Node and uvicorn 5 s): a
	// request that meets the server's end of a connection ends as ambiguous.
	idleTime = time.Second
	// maxHeader bounds an answer's header, of which only the status counts.
	maxHeader = 64 << 10
)

// transport speaks HTTP/1.1 only: there a connection carries one request at a time, so that
// what was written tells what the application can have.
func transport(workers int) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, // which leaves loopback addresses alone
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err //nolint:wrapcheck // it is looked into by its types
			}
			return &countingConn{Conn: conn}, nil
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConnsPerHost:    workers,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
		Protocols:              protocols,
	}
}

// A countingConn counts the bytes written to it, those of a TLS handshake included.
type countingConn struct {
	net.Conn
	written atomic.Int64
}

// Write counts before it writes: what has begun may have arrived.
func (c *countingConn) Write(b []byte) (int, error) {
	c.written.Add(int64(len(b)))
	return c.Conn.Write(b) //nolint:wrapcheck // it is a net.Conn itself
}

// counting returns the countingConn below conn, or nil if there is none.
func counting(conn net.Conn) *countingConn {
	for { // a proxy may be spoken to by TLS as well
		t, ok := conn.(*tls.Conn)
		if !ok {
			break
		}
		conn = t.NetConn()
	}
	c, _ := conn.(*countingConn)
	return c
}
