package locker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// A lease that no Lock returned fails with ErrInvalid, and does not panic.
func TestZeroLease(t *testing.T) {
	for name, l := range map[string]*Lease{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			for what, err := range map[string]error{
				"Unlock":    l.Unlock(t.Context()),
				"LetExpire": l.LetExpire(),
				"Renew":     l.Renew(t.Context()),
				"Err":       l.Err(),
				"Context":   context.Cause(l.Context(t.Context())),
			} {
				wantErr(t, err, ErrInvalid, what)
			}
			if l.Key() != "" || l.Owner() != "" || l.Token() != 0 || l.Holds() != 0 || !l.Deadline().IsZero() || !lostIsClosed(l) {
				t.Error("the lease has a key, an owner, a token, holds, a deadline or an open Lost; want none")
			}
		})
	}
}

// A nil context is refused by the call that is given it, or by the Lock under it.
func TestNilContexts(t *testing.T) {
	b := newBench(t, plain)
	var none context.Context
	l := b.lock(t.Context(), "k")
	_, lockErr := b.Lock(none, "other")
	_, tryErr := b.TryLock(none, "other")
	_, ownerErr := b.Lock(ContextWithOwner(none, "ann"), "other")
	for what, err := range map[string]error{
		"Lock": lockErr, "TryLock": tryErr, "Lock under ContextWithOwner": ownerErr,
		"Unlock": l.Unlock(none), "Renew": l.Renew(none), "Context": context.Cause(l.Context(none)),
		"Do": Do(none, b, "other", func(context.Context) error { return nil }),
	} {
		wantErr(t, err, ErrInvalid, what)
	}
	b.unlock(l)
}

// Err is nil while the lease is held, and then says why it ended.
func TestLeaseErr(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
		unlocked, lost := b.lock(t.Context(), "unlocked"), b.lock(t.Context(), "lost")
		for _, l := range []*Lease{unlocked, lost} {
			if err := l.Err(); err != nil {
				t.Errorf("Err of a lease that is held: %v, want nil", err)
			}
		}
		b.unlock(unlocked)
		b.until(time.Second)
		wantErr(t, unlocked.Err(), ErrNotHeld, "it was unlocked", ErrLost)
		wantErr(t, lost.Err(), ErrLost, "its time is over", ErrNotHeld)
		wantErr(t, lost.Err(), ErrExpired, "the error says why")
	})
}

// Do's error tells whether the function ran.
func TestDoTellsWhetherItRan(t *testing.T) {
	own := errors.New("the function's own")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		run := func(err error) func(context.Context) error {
			return func(context.Context) error { return err }
		}
		var de *DoError
		if err := Do(t.Context(), b, "k", run(own)); err != own {
			t.Errorf("error %v, want the function's own as it is", err)
		}
		b.store.seize("k", "stranger", time.Hour)
		err := Do(t.Context(), b, "k", run(nil), WithWait(0))
		wantErr(t, err, ErrNotAcquired, "Lock failed")
		if !errors.As(err, &de) || de.Ran || de.Key != "k" {
			t.Errorf("error %#v, want a DoError of k that did not run", err)
		}
		b.store.from(opRelease, fail(errNoPerm))
		err = Do(t.Context(), b, "other", run(own))
		wantErr(t, err, ErrUnavailable, "Unlock failed")
		wantErr(t, err, own, "the function failed, too")
		if !errors.As(err, &de) || !de.Ran || de.Key != "other" {
			t.Errorf("error %#v, want a DoError of other that ran", err)
		}
		// An inner Do that did not run its function says so of that one only.
		err = Do(t.Context(), b, "outer", func(ctx context.Context) error { return Do(ctx, b, "k", run(nil), WithWait(0)) })
		if !errors.As(err, &de) || !de.Ran || de.Key != "outer" {
			t.Errorf("error %#v, want a DoError of outer, which ran", err)
		}
	})
}

// Options that contradict each other are refused at one level; a call may say otherwise
// than the constructor.
func TestContradictingOptions(t *testing.T) {
	b := newBench(t, plain, WithMaxRenewals(1))
	for _, opts := range [][]LockOption{
		{WithoutRenewal(), WithMaxRenewals(1)},
		{WithMaxRenewals(1), WithRenewal()},
	} {
		_, err := b.Lock(t.Context(), "k", opts...)
		wantErr(t, err, ErrInvalid, "the two contradict each other")
		_, err = New(newFake(), opts[0], opts[1])
		wantErr(t, err, ErrInvalid, "the two contradict each other")
	}
	b.unlock(b.lock(t.Context(), "k", WithoutRenewal()))
}

// However close to the end of the lease the longest hold is, a tenth of the TTL remains
// for rolling back.
func TestMaxHoldNearTheEnd(t *testing.T) {
	for _, opts := range [][]LockOption{
		{WithMaxHold(987 * time.Millisecond), WithoutRenewal()},
		{WithMaxHold(987 * time.Millisecond)},
		{WithMaxHold(950 * time.Millisecond), WithoutRenewal()},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, plain, WithTTL(time.Second))
			l := b.lock(t.Context(), "k", opts...)
			<-l.Lost()
			if left := time.Until(l.Deadline()); left < 100*time.Millisecond {
				t.Errorf("%v left at %v, want 100ms at least", left, b.at())
			}
			wantErr(t, l.Err(), ErrMaxHold, "the limit ended it")
		})
	}
}

// manyNodes is a driver whose store is several servers.
type manyNodes struct {
	*fake
	changed func(string, error)
}

func (d *manyNodes) Configure(c driver.Config) (driver.Settings, error) {
	d.changed = c.NodeChanged
	return driver.Settings{}, nil
}

func (*manyNodes) Nodes(driver.Claim) (have, of int) { return 3, 5 }

func TestNodesOfALease(t *testing.T) {
	d := &manyNodes{fake: newFake()}
	l, err := New(d)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lease, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if have, of := lease.Nodes(); have != 3 || of != 5 {
		t.Errorf("%d of %d nodes, want what the driver says", have, of)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have, of := lease.Nodes(); have != 0 || of != 5 {
		t.Errorf("%d of %d nodes have a lease that was unlocked", have, of)
	}
	one, err := New(newFake())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	lease, err = one.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if have, of := lease.Nodes(); have != 0 || of != 0 {
		t.Errorf("%d of %d nodes where there is one store", have, of)
	}
	if have, of := (&Lease{}).Nodes(); have != 0 || of != 0 {
		t.Errorf("%d of %d nodes of a zero lease", have, of)
	}
}

func TestTroubleOfANodeIsTold(t *testing.T) {
	var mu sync.Mutex
	var lines bytes.Buffer
	events := make(chan Event, 10)
	d := &manyNodes{fake: newFake()}
	l, err := New(d,
		WithObserver(ObserverFunc(func(_ context.Context, e Event) { events <- e })),
		WithLogger(slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return lines.Write(b)
		}), nil))))
	if err != nil {
		t.Fatal(err)
	}
	trouble := errors.New("refused")
	d.changed("h1:6379", trouble)
	d.changed("h1:6379", nil)
	for _, want := range []error{trouble, nil} {
		select {
		case e := <-events:
			if e.Kind != EventNode || e.Node != "h1:6379" || e.Err != want || e.Key != "" {
				t.Errorf("%+v", e)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
		}
	}
	if err := l.Close(); err != nil { // which waits for the log
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"level=WARN", "level=INFO", "node=h1:6379", "err=refused"} {
		if !bytes.Contains(lines.Bytes(), []byte(want)) {
			t.Errorf("%q is not in the log:\n%s", want, lines.String())
		}
	}
	if n := bytes.Count(lines.Bytes(), []byte("\n")); n != 2 {
		t.Errorf("%d lines, want one for each:\n%s", n, lines.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// String names the key, the token and the state.
func TestLeaseString(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		wantString := func(l *Lease, state string) {
			t.Helper()
			if got, want := l.String(), fmt.Sprintf(`lease of "orders/42", token %d, %s`, l.Token(), state); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		l := b.lock(t.Context(), "orders/42")
		wantString(l, "held")
		b.unlock(l)
		wantString(l, "unlocked")
		l = b.lock(t.Context(), "orders/42")
		b.store.free("orders/42")
		wantErr(t, l.Renew(t.Context()), ErrLost, "the key was deleted")
		wantString(l, "lost")
		if got := (*Lease)(nil).String(); got != "no lease" {
			t.Errorf("got %q, want no lease", got)
		}
	})
}
