package leader_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/strategy/memory"
)

// table refuses what comes from a leader that was followed by another one.
type table struct{ fence int64 }

func (t *table) write(token int64) error {
	if token < t.fence {
		return errors.New("a later leader has written")
	}
	t.fence = token
	return nil
}

// A leader that writes with its token.
func ExampleRun() {
	l, _ := memory.New()
	defer l.Close()
	var invoices table
	ctx, stop := context.WithCancel(context.Background())

	err := leader.Run(ctx, l, "billing/leader", func(ctx context.Context, token int64) error {
		for month := 1; ctx.Err() == nil; month++ {
			fmt.Println("month", month, invoices.write(token))
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
