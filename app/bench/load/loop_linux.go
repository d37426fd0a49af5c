package load

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// stall is how long the loop waits for any answer before it gives the server up.
const stall = 30 * time.Second

// A loop drives all connections of a job from one thread. Go's own network poller would wake
// a goroutine for each answer, at about twice the cost.
type loop struct {
	job      Job
	requests [][]byte
	next     int
	tally    tally
	epoll    int
	conns    map[int32]*conn // by descriptor
	deadline time.Time
	waiting  int // connections whose answer is outstanding
}

type conn struct {
	fd   int
	sent time.Time
	in   []byte // of the answer, so far
	room [4096]byte
}

func drive(j Job, requests [][]byte) (t tally, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := &loop{job: j, requests: requests, conns: map[int32]*conn{}}
	l.tally.answers = map[string]int{}
	l.tally.latencies = make([]time.Duration, 0, len(requests))
	if l.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return tally{}, fmt.Errorf("epoll: %w", err)
	}
	defer func() { err = errors.Join(err, syscall.Close(l.epoll)) }()
	defer func() {
		for _, c := range l.conns {
			err = errors.Join(err, syscall.Close(c.fd))
		}
	}()
	for range j.Connections {
		if err := l.connect(); err != nil {
			return tally{}, fmt.Errorf("connect: %w", err)
		}
	}
	err = l.run()
	return l.tally, err
}

func (l *loop) connect() error {
	addr, err := net.ResolveTCPAddr("tcp4", l.job.Addr)
	if err != nil {
		return err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	c := &conn{fd: fd}
	l.conns[int32(fd)] = c //nolint:gosec // the system counts descriptors from 0
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}); err != nil {
		return err
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return err
	}
	return syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}) //nolint:gosec // as above
}

func (l *loop) run() error {
	l.tally.start = time.Now()
	l.deadline = l.tally.start.Add(l.job.Duration)
	for _, c := range l.conns {
		if err := l.send(c, time.Now()); err != nil {
			return err
		}
	}
	events := make([]syscall.EpollEvent, l.job.Connections)
	for l.waiting > 0 {
		n, err := syscall.EpollWait(l.epoll, events, int(stall.Milliseconds()))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("no answer within %s", stall)
		}
		for _, e := range events[:n] {
			if err := l.receive(l.conns[e.Fd]); err != nil {
				return err
			}
		}
	}
	l.tally.end = time.Now()
	return nil
}

// send sends the next request on c, unless the job is over.
func (l *loop) send(c *conn, now time.Time) error {
	if l.next == len(l.requests) {
		if !l.job.Again {
			return nil
		}
		l.next = 0
	}
	if now.After(l.deadline) {
		return nil
	}
	r := l.requests[l.next]
	l.next++
	c.sent = now
	// a buffer for sending holds many requests, and the one before was answered
	n, err := syscall.Write(c.fd, r)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if n < len(r) {
		return fmt.Errorf("%d of %d bytes were sent", n, len(r))
	}
	l.waiting++
	return nil
}

// receive takes what has come on c and, if that ends its answer, sends the next request.
func (l *loop) receive(c *conn) error {
	n, err := syscall.Read(c.fd, c.room[len(c.in):])
	if errors.Is(err, syscall.EAGAIN) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return errors.New("the server closed a connection, or its answer is too long")
	}
	c.in = c.room[:len(c.in)+n]
	status, verdict, ok := answer(c.in)
	if !ok {
		return nil
	}
	now := time.Now()
	if string(status) == "200" {
		l.tally.latencies = append(l.tally.latencies, now.Sub(c.sent))
	}
	if string(status) != "200" || len(verdict) == 0 {
		verdict = status
	}
	l.tally.answers[string(verdict)]++
	l.waiting--
	c.in = nil
	return l.send(c, now)
}

var (
	lineEnd       = []byte("\r\n")
	headerEnd     = []byte("\r\n\r\n")
	headerLength  = []byte("\r\nContent-Length: ")
	headerVerdict = []byte("\r\nAdmitone-Verdict: ")
)

// answer reads the status and the verdict of a whole answer; ok is false while it is not whole.
// It understands what net/http writes.
func answer(b []byte) (status, verdict []byte, ok bool) {
	end := bytes.Index(b, headerEnd)
	if end < 0 {
		return nil, nil, false
	}
	head := b[:end+2]
	length, err := strconv.Atoi(string(value(head, headerLength)))
	if err != nil || len(b) < end+len(headerEnd)+length {
		return nil, nil, false
	}
	return head[len("HTTP/1.1 "):len("HTTP/1.1 200")], value(head, headerVerdict), true
}

func value(head, name []byte) []byte {
	_, v, _ := bytes.Cut(head, name)
	v, _, _ = bytes.Cut(v, lineEnd)
	return v
}
