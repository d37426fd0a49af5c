package rig_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/admitone/admitone/app/bench/rig"
)

func TestCPUCountsChildren(t *testing.T) {
	t.Parallel()
	busy := []string{"/bin/sh", "-c", "while :; do :; done"}
	parent, err := rig.Start(rig.Command{Argv: []string{"/bin/sh", "-c", `"$@" & wait`, "sh", busy[0], busy[1], busy[2]}})
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Stop(os.Kill)
	defer syscall.Kill(-parent.PID(), syscall.SIGKILL) //nolint:errcheck // the child, which is in the parent's group
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < 30*time.Second; <-tick.C {
		used, err := rig.CPU(parent.PID())
		if err != nil {
			t.Fatal(err)
		}
		if used >= 50*time.Millisecond {
			return
		}
	}
	t.Error("the parent waits and its child works, and no CPU time is told")
}

func TestUsageOfAProcessThatHasEndedIsAnError(t *testing.T) {
	t.Parallel()
	p, err := rig.Start(rig.Command{Argv: []string{"/bin/true"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Stop(os.Kill)
	if _, err := rig.CPU(p.PID()); err == nil {
		t.Error("CPU = nil; want an error")
	}
	if _, err := rig.RSS(p.PID()); err == nil {
		t.Error("RSS = nil; want an error")
	}
}

func TestRSSIsThatOfTheProcess(t *testing.T) {
	t.Parallel()
	if n, err := rig.RSS(os.Getpid()); err != nil || n < 1<<20 || n > 1<<34 {
		t.Errorf("RSS = %d, %v", n, err)
	}
}
