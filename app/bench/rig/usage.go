package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat. It is 1/100 s on every Linux that runs Go.
const tick = 10 * time.Millisecond

// CPU returns the time that the process pid, its living children and those that it has waited
// for have used so far, to 10 ms each.
func CPU(pid int) (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var total time.Duration
	found := false
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		s, err := parseStat(string(text))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		switch pid {
		case s.pid:
			found = true
			total += s.own + s.waited
		case s.parent:
			total += s.own
		}
	}
	if !found {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return total, nil
}

type stat struct {
	pid, parent int
	own, waited time.Duration // CPU time, and that of children waited for
}

func parseStat(text string) (s stat, err error) {
	// the name, in parentheses, may itself hold parentheses and spaces
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("not the status of a process: %q", text)
	}
	f := strings.Fields(text[end+1:])
	if len(f) < 15 {
		return stat{}, fmt.Errorf("not the status of a process: %q", text)
	}
	var n [6]int
	for i, field := range []string{strings.TrimSpace(text[:open]), f[1], f[11], f[12], f[13], f[14]} {
		if n[i], err = strconv.Atoi(field); err != nil {
			return stat{}, fmt.Errorf("not the status of a process: %w", err)
		}
	}
	return stat{pid: n[0], parent: n[1], own: time.Duration(n[2]+n[3]) * tick, waited: time.Duration(n[4]+n[5]) * tick}, nil
}

// RSS returns how many bytes of memory the process pid has resident.
func RSS(pid int) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	f := strings.Fields(string(text))
	if len(f) < 2 {
		return 0, fmt.Errorf("read the memory of process %d: %q", pid, text)
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// Load returns the machine's load averages over 1, 5 and 15 minutes, as text.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(text))
	if err != nil || len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], " ")
}
