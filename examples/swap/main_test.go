package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/distlock/locker/internal/test/redistest"
)

// The test binary is the program, so that its workers run under the race detector.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		main()
		return
	}
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
			if err := run(context.Background(), args, &out, &errs); err != nil {
				t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
			}
			if !strings.Contains(out.String(), "No two sections overlapped") {
				t.Errorf("no verdict in\n%s", out.String())
			}
		})
	}
}

func TestRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{
		{"-strategies", "setnx,nosuch"}, {"-workers", "0"}, {"-redis", "http://user:secret@x"}, {"-nosuch"},
	} {
		var out, errs bytes.Buffer
		err := run(context.Background(), args, &out, &errs)
		if err == nil {
			t.Errorf("%v was accepted", args)
		} else if strings.Contains(err.Error()+errs.String(), "secret") {
			t.Errorf("%v: the password is told: %v", args, err)
		}
	}
}
