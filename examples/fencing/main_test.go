package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/fence"
)

func TestTheStory(t *testing.T) {
	var out, errs bytes.Buffer
	if code := cli.Run(t.Context(), "fencing", run, nil, &out, &errs); code != cli.OK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	for _, want := range []string{
		"stale fencing token",
		"slow   learns from Unlock that the lease was lost",
		"takes every write  2       0        40    70     60         a sale is lost",
		"compares tokens    2       1        40    60     60         right",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestRefusesNonsense(t *testing.T) {
	for want, args := range map[int][][]string{
		cli.Failed:   {{"-url", "nosuch://x"}},
		cli.BadUsage: {{"-nosuch"}, {"more"}},
	} {
		for _, args := range args {
			var out, errs bytes.Buffer
			if code := cli.Run(t.Context(), "fencing", run, args, &out, &errs); code != want {
				t.Errorf("%v: exit code %d, not %d", args, code, want)
			}
		}
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := cli.Run(ctx, "fencing", run, nil, new(bytes.Buffer), new(bytes.Buffer)); code != cli.Interrupted {
		t.Errorf("exit code %d", code)
	}
}

func open(t *testing.T) stock {
	t.Helper()
	s, err := newStock(t.Context(), product, units)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s
}

func TestFence(t *testing.T) {
	s := open(t)
	for _, w := range []struct {
		token int64
		want  error
	}{{5, nil}, {5, nil}, {4, fence.ErrStale}, {7, nil}, {6, fence.ErrStale}, {5, fence.ErrStale}, {8, nil}} {
		if err := s.writeFenced(t.Context(), product, int(w.token), w.token); !errors.Is(err, w.want) {
			t.Errorf("token %d: %v, not %v", w.token, err, w.want)
		}
	}
	if n, err := read(t.Context(), s.db, product); n != 8 || err != nil {
		t.Error(n, err)
	}
	if err := s.writeFenced(t.Context(), "nosuch", 1, 9); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("a product that is not there: %v", err)
	}
}

// The greatest token has the last word among writers at the same time.
func TestFenceUnderConcurrency(t *testing.T) {
	s := open(t)
	var all sync.WaitGroup
	for i := range int64(50) {
		token := i + 1
		all.Go(func() {
			if err := s.writeFenced(t.Context(), product, int(token), token); err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n, err := read(t.Context(), s.db, product); n != 50 || err != nil {
		t.Error(n, err)
	}
}

// An owner that has read is safe from earlier ones before it has written itself.
func TestReadKeepsEarlierOwnersOut(t *testing.T) {
	s := open(t)
	if n, err := s.readFenced(t.Context(), product, 5); n != units || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.readFenced(t.Context(), product, 6); n != units || err != nil {
		t.Fatal(n, err)
	}
	if err := s.writeFenced(t.Context(), product, 70, 5); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the late write: %v", err)
	}
	if _, err := s.readFenced(t.Context(), product, 5); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a late read: %v", err)
	}
	if err := s.writeFenced(t.Context(), product, 90, 6); err != nil {
		t.Error(err)
	}
	if _, err := s.readFenced(t.Context(), "nosuch", 7); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("a product that is not there: %v", err)
	}
}
