package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
)

// The test binary is the program, so that its workers run under the race detector.
func TestMain(m *testing.M) {
	child.Serve(workerKind, work)
	// Each process with the race detector sleeps for a second at its end, else.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

func TestMovesAFleet(t *testing.T) {
	for name, args := range map[string][]string{
		"embedded": {"-phase", "100ms"},
		"redis":    {"-phase", "200ms", "-redis", redistest.Shared(t).URL()},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := cli.Run(t.Context(), "swap", run, args, &out, &errs); code != cli.OK {
				t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
			}
			if !strings.Contains(out.String(), "No two sections overlapped") {
				t.Errorf("no verdict in\n%s", out.String())
			}
		})
	}
}

func TestRefusesNonsense(t *testing.T) {
	for want, args := range map[int][][]string{
		cli.Failed:   {{"-redis", "http://user:secret@x"}},
		cli.BadUsage: {{"-strategies", "setnx,nosuch"}, {"-workers", "0"}, {"-nosuch"}, {"more"}},
	} {
		for _, args := range args {
			var out, errs bytes.Buffer
			if code := cli.Run(t.Context(), "swap", run, args, &out, &errs); code != want || errs.Len() == 0 {
				t.Errorf("%v: exit code %d, not %d: %s", args, code, want, errs.String())
			}
			if strings.Contains(errs.String(), "secret") {
				t.Errorf("%v: the password is told: %s", args, errs.String())
			}
		}
	}
}
