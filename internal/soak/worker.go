package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// workerEnv, when set, makes the program a worker; its value is the workerSpec.
const workerEnv = "LOCKER_SOAK_WORKER"

// workerSpec is what a worker is told when it starts.
type workerSpec struct {
	Strategy string
	Process  int // which of the strategy's processes it is
	Seed     uint64
	Nodes    []string // addresses
	Resource string   // unix socket of the server with the guarded resource
	Log      string   // path
	Callers  int
	Keys     int
	TTLs     []time.Duration
}

// The lines that a worker and the arena say to each other.
const (
	sayReady   = "ready"   // it locks
	sayDrain   = "drain"   // let everybody finish
	sayDrained = "drained" // everything was given back
	sayGrow    = "grow"    // use many keys
	sayGrown   = "grown"   // so many bytes and goroutines are kept for them
	sayClose   = "close"   // close the Locker
	sayClosed  = "closed"  // it took so long, and so many goroutines were left
)

// ServeWorker does not return in a process that [Run] has started as a worker of one
// of strategies. In other processes it does nothing. It comes first in main, or in
// TestMain.
func ServeWorker(strategies ...Strategy) {
	text, ok := os.LookupEnv(workerEnv)
	if !ok {
		return
	}
	if err := serveWorker(text, strategies); err != nil {
		fmt.Fprintln(os.Stderr, "soak worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveWorker(text string, strategies []Strategy) error {
	w := &worker{out: os.Stdout, account: newAccount()}
	if err := json.Unmarshal([]byte(text), &w.workerSpec); err != nil {
		return err
	}
	i := indexOf(strategies, w.Strategy)
	if i < 0 {
		return fmt.Errorf("no strategy %q here", w.Strategy)
	}
	redis.SetLogger(quiet{})
	var clients []redis.UniversalClient
	for _, addr := range w.Nodes {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		clients = append(clients, rdb)
	}
	resource := redis.NewClient(&redis.Options{Network: "unix", Addr: w.Resource})
	defer resource.Close()
	w.resource = &resourceClient{resource, w.Strategy}
	var err error
	if w.log, err = createLog(w.Log); err != nil {
		return err
	}
	w.open = func(opts ...locker.Option) (locker.Locker, error) {
		return strategies[i].New(Process{Index: w.Process, Clients: clients, Options: opts})
	}
	if w.locker, err = w.open(locker.WithObserver(w.account)); err != nil {
		return err
	}
	return w.serve(os.Stdin)
}

// quiet keeps go-redis from printing each broken connection.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// worker is a process that locks.
type worker struct {
	workerSpec
	open     func(...locker.Option) (locker.Locker, error)
	locker   locker.Locker
	account  *account
	resource *resourceClient
	log      *logFile
	out      io.Writer
	ops      atomic.Uint32
	draining atomic.Bool
}

func (w *worker) serve(in io.Reader) error {
	var callers sync.WaitGroup
	for i := range w.Callers {
		c := newCaller(w, i)
		callers.Go(c.run)
	}
	callers.Go(newGuest(w).run)
	fmt.Fprintln(w.out, sayReady)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch lines.Text() {
		case sayDrain:
			w.draining.Store(true)
			callers.Wait()
			w.settle()
			fmt.Fprintln(w.out, sayDrained)
		case sayGrow:
			bytes, goroutines := w.grow()
			fmt.Fprintln(w.out, sayGrown, bytes, goroutines)
		case sayClose:
			began := time.Now()
			if err := w.locker.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "Close:", err)
			}
			took := time.Since(began)
			left := goroutinesLeft(leakPatience)
			if left != "" {
				fmt.Fprintln(os.Stderr, left)
			}
			fmt.Fprintln(w.out, sayClosed, took.Milliseconds(), strings.Count(left, "goroutine "))
			return nil
		}
	}
	return nil // the nemesis is gone
}

// leakPatience is how long goroutines get to end after Close.
const leakPatience = 5 * time.Second

// goroutinesLeft polls, as goroutines tell of no event, until none is in code of the
// module, the soak's own aside, and returns the stacks of those that remain.
func goroutinesLeft(patience time.Duration) string {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 4<<20)
		buf = buf[:runtime.Stack(buf, true)]
		var left []string
		for stack := range strings.SplitSeq(string(buf), "\n\n") {
			if strings.Contains(stack, "distlock/locker") && !strings.Contains(stack, "distlock/locker/internal/soak.") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}

// heap is how much memory is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools held on to
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
