package soak

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/redis/go-redis/v9/logging"
)

const workerKind = "soak worker"

// workerSpec is the configuration that a worker gets when it starts.
type workerSpec struct {
	Arena      string
	Route      route
	Strategies []string
	Process    int // which of the arena's processes it is
	Seed       uint64
	Resource   string // unix socket of the server with the guarded resource
	Log        string // path
	Callers    int
	Keys       int
	TTLs       []time.Duration
}

// worker is a process that locks.
type worker struct {
	workerSpec
	strategies []Strategy
	lockers    []locker.Locker
	resource   resource
	log        *logFile
	ops        atomic.Uint32 // numbers what the records belong to
	calls      atomic.Int64
	ctx        context.Context // done when callers are to finish
}

// ServeWorker does not return in a process that [Run] has started as a worker. In
// other processes it does nothing. It comes first in main, or in TestMain.
func ServeWorker(strategies ...Strategy) {
	child.Serve(workerKind, func(parent child.Parent, spec workerSpec) error {
		w, err := newWorker(spec, strategies)
		if err != nil {
			return err
		}
		return w.serve(parent)
	})
}

func newWorker(spec workerSpec, strategies []Strategy) (*worker, error) {
	w := &worker{workerSpec: spec}
	logging.Disable() // go-redis would print each broken connection
	w.resource = dialResource(w.Resource, w.Arena)
	var err error
	if w.log, err = createLog(w.Log); err != nil {
		return nil, err
	}
	for _, name := range w.Strategies {
		i := slices.IndexFunc(strategies, func(s Strategy) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("this program has no strategy %q", name)
		}
		l, err := strategies[i].New(Process{Index: w.Process, Clients: w.Route.clients(), Addrs: w.Route.Own})
		if err != nil {
			return nil, err
		}
		w.strategies = append(w.strategies, strategies[i])
		w.lockers = append(w.lockers, l)
	}
	return w, nil
}

// serve locks until standard input ends. It prints how many calls it has made, so that
// the other side knows that it is there.
func (w *worker) serve(parent child.Parent) error {
	var finish func()
	w.ctx, finish = parent.Context()
	defer finish()
	var callers sync.WaitGroup
	for strategy := range w.lockers {
		for i := range w.Callers {
			c := newCaller(w, strategy, i)
			callers.Go(c.run)
		}
	}
	go func() {
		for ; ; time.Sleep(250 * time.Millisecond) { // this is the rate of reports
			fmt.Fprintln(parent, w.calls.Load())
		}
	}()
	callers.Wait()
	for _, l := range w.lockers {
		_ = l.Close() // what it promises is for the conformance suite
	}
	fmt.Fprintln(parent, w.calls.Load())
	return nil
}
