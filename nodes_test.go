package locker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
)

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
