package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
)

// A screen is where the demo tells what happens. Safe for concurrent use.
type screen struct {
	w    io.Writer
	live bool // a terminal, on which a line can be overwritten

	mu sync.Mutex
}

func newScreen(w io.Writer) *screen {
	f, ok := w.(*os.File)
	return &screen{w: w, live: ok && isatty.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb"}
}

func (s *screen) say(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.w, format+"\n", a...)
}

// green and red mark a text on a terminal whose user wants colours.
func (s *screen) green(text string) string { return s.colour("32", text) }
func (s *screen) red(text string) string   { return s.colour("31", text) }

func (s *screen) colour(code, text string) string {
	if !s.live || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// mark stands before what is good or not.
func (s *screen) mark(good bool) string {
	if good {
		return s.green("✓")
	}
	return s.red("✗")
}

// step does one thing and tells what came of it. While it lasts a terminal shows that it
// does, and how many deliveries have been sent.
func (s *screen) step(name string, sent func() int, do func() (string, error)) error {
	began, before := time.Now(), sent()
	end := make(chan struct{})
	var shown sync.WaitGroup
	if s.live {
		shown.Go(func() {
			t := time.NewTicker(80 * time.Millisecond)
			defer t.Stop()
			for {
				s.mu.Lock()
				fmt.Fprintf(s.w, "\r\x1b[2K  … %-17s %s", name, s.progress(sent()-before, time.Since(began)))
				s.mu.Unlock()
				select {
				case <-t.C:
				case <-end:
					s.mu.Lock()
					fmt.Fprint(s.w, "\r\x1b[2K")
					s.mu.Unlock()
					return
				}
			}
		})
	}
	what, err := do()
	close(end)
	shown.Wait()
	if err != nil {
		what = "failed"
	}
	s.say("  %s %-17s %s", s.mark(err == nil), name, what)
	return err
}

func (s *screen) progress(sent int, took time.Duration) string {
	if sent == 0 {
		return took.Round(100 * time.Millisecond).String()
	}
	return fmt.Sprintf("%d deliveries, %s", sent, took.Round(100*time.Millisecond))
}
