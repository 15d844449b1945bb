package leader_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/strategy/memory"
)

// A leader that writes with its token: what it writes to refuses that of a leader before.
func ExampleRun() {
	l, _ := memory.New()
	defer l.Close()
	invoices := fence.NewMemory() // for a database it is package sqlfence
	ctx, stop := context.WithCancel(context.Background())

	err := leader.Run(ctx, l, "billing/leader", func(ctx context.Context, token int64) error {
		for month := 1; ctx.Err() == nil; month++ {
			fmt.Println("month", month, invoices.Admit(ctx, "invoices", token))
			if month == 3 {
				stop() // as a SIGTERM does, with signal.NotifyContext
			}
		}
		return ctx.Err()
	}, leader.WithLockOptions(locker.WithTTL(10*time.Second)))
	fmt.Println(err)
	// Output:
	// month 1 <nil>
	// month 2 <nil>
	// month 3 <nil>
	// context canceled
}

// Ask whether this process leads, and log what happens.
func ExampleElector() {
	l, _ := memory.New()
	defer l.Close()
	e, _ := leader.New(l, "billing/leader", leader.WithObserver(func(ev leader.Event) {
		fmt.Println(ev.Kind, ev.Token > 0)
	}))
	fmt.Println("leads:", e.IsLeader())
	_ = e.Run(context.Background(), func(context.Context, int64) error {
		fmt.Println("leads:", e.IsLeader())
		return nil // it resigns
	})
	fmt.Println("leads:", e.IsLeader())
	// Output:
	// leads: false
	// elected true
	// leads: true
	// ended true
	// leads: false
}

// candidacy is the first program of README.md, and watch the second.
func candidacy(ctx context.Context, l locker.Locker) error {
	e, err := leader.New(l, "billing/leader", leader.WithIdentity("web-7", "10.0.0.7:8080"))
	if err != nil {
		return err
	}
	err = e.Run(ctx, func(ctx context.Context, token int64) error { // called each time this process is elected
		fmt.Println("leads with token", token)
		<-ctx.Done() // the leadership is lost, or all of it is over
		return nil
	})
	return err
}

func watch(ctx context.Context, l locker.Locker) error {
	e, err := leader.New(l, "billing/leader")
	if err != nil {
		return err
	}
	for term, err := range e.Observe(ctx) {
		if err != nil {
			return err // or go on: Observe does
		}
		fmt.Println(term.Identity, "leads at", term.Payload, "with token", term.Token)
	}
	return nil
}

// The programs of README.md.
func TestReadme(t *testing.T) {
	docblocks.InFile(t, "README.md", "example_test.go")
	l, err := memory.New()
	require.NoError(t, err)
	defer l.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- candidacy(ctx, l) }()
	go func() { ended <- watch(ctx, l) }()
	for range 2 {
		if err := <-ended; err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	}
}
