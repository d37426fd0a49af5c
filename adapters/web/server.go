package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	readHeaderTimeout  = 10 * time.Second
	defaultReadTimeout = 60 * time.Second // 26 MiB of mail at 3.7 Mbit/s
	answerTime         = 30 * time.Second // beyond reading; the slowest vendor waits less
	idleTimeout        = 2 * time.Minute  // longer than balancers keep theirs, so that they close first
	maxHeaderBytes     = 64 << 10
)

// A ServerConfig says where one listener listens and what answers there.
type ServerConfig struct {
	Listen  string // host:port; port 0 takes a free one
	Handler http.Handler
	Log     *slog.Logger
	// ReadTimeout bounds reading one request, slow bodies included; 0 means 60 s.
	ReadTimeout time.Duration
	// Failed, if set, is told when serving ends by anything but Stop. It is called at most once.
	Failed func(error)
}

// A Server is one listener. Its methods are called one at a time.
type Server struct {
	cfg      ServerConfig
	http     *http.Server
	listener net.Listener
	served   chan struct{} // closed when the serving goroutine has ended

	mu     sync.Mutex
	unused map[net.Conn]bool // connections on which nothing was sent yet
}

// NewServer returns a server that does not listen yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = defaultReadTimeout
	}
	s := &Server{cfg: cfg, unused: map[net.Conn]bool{}}
	s.http = &http.Server{
		ConnState:         s.connState,
		Handler:           cfg.Handler,
		ReadHeaderTimeout: min(readHeaderTimeout, cfg.ReadTimeout),
		ReadTimeout:       cfg.ReadTimeout,
		// net/http counts it from the header, so it holds the time for the body too.
		WriteTimeout:   cfg.ReadTimeout + answerTime,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	return s
}

func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.unused[c] = true
	} else {
		delete(s.unused, c)
	}
}

// closeUnused closes connections that somebody opened in advance: net/http would wait for
// their first request for 5 s.
func (s *Server) closeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.unused {
		_ = c.Close() // nobody waits for anything on it
	}
}

// Start listens, so that an address that can't be had is an error here, and serves in the
// background until Stop. ctx bounds the listening only. It is called once.
func (s *Server) Start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	s.listener = l
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Log.Error("listener ended", "listen", s.cfg.Listen, "error", err)
			if s.cfg.Failed != nil {
				s.cfg.Failed(fmt.Errorf("serve on %s: %w", s.cfg.Listen, err))
			}
		}
	}()
	return nil
}

// Addr returns the address that the server listens on, with the port that it got; before
// Start, the one that it was told.
func (s *Server) Addr() string {
	if s.listener == nil {
		return s.cfg.Listen
	}
	return s.listener.Addr().String()
}

// Stop closes the listener and waits for the requests that run. If ctx ends first, it cuts
// them off and returns ctx's error. It works without Start, and twice.
func (s *Server) Stop(ctx context.Context) error {
	s.http.RegisterOnShutdown(s.closeUnused)
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests on %s cut off: %w", s.Addr(), err), s.http.Close())
	}
	if s.served != nil {
		<-s.served
	}
	return err
}
