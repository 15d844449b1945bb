package compare

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Options say what is compared.
type Options struct {
	Strategies []string // of [Names]; default all that the servers allow
	URL        string   // of a server; "" for servers that are started
	Nodes      []string // URLs of redlock's
	Quick      bool
	Need       Need   // to be advised on; "" for all
	Rounds     int    // of the benchmarks; default 3
	Only       string // of the suite's cases, a regular expression; "" for all
	// Begin is called when a part begins, and Suite with the progress of a strategy's suite.
	Begin func(what string)
	Suite func(strategy string, done, of int)
}

// LeftError says that keys are left on a server.
type LeftError struct {
	Mark string
	Err  error
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("keys that contain %s are left on the servers: %v", e.Mark, e.Err)
}

func (e *LeftError) Unwrap() error { return e.Err }

// Run compares. What it has found when ctx ends is thrown away. With a [LeftError] there may be
// a Result as well.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	s, err := openStores(ctx, o.URL, o.Nodes)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if !s.own {
		defer func() { // Ctrl-C does not spare us this
			if left := s.cleanUp(context.WithoutCancel(ctx)); left != nil {
				err = left
			}
		}()
	}
	names := o.Strategies
	if len(names) == 0 {
		for _, name := range Names() {
			if _, err := s.nodes(); name != "redlock" || err == nil {
				names = append(names, name)
			}
		}
	}
	r = &Result{
		Started: time.Now(), OwnServers: s.own, Quick: o.Quick, need: o.Need, Server: s.about,
		Machine: fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
	}
	for _, name := range names {
		if _, err := s.harness(name); err != nil {
			return nil, err
		}
		r.Strategies = append(r.Strategies, &Strategy{Name: name})
	}
	o.Begin("the conformance suite, all strategies side by side")
	r.suites(ctx, s, o)
	length := 500 * time.Millisecond
	if o.Quick {
		length = 200 * time.Millisecond
	}
	o.Begin("benchmarks")
	r.bench(ctx, s, length, cmp.Or(o.Rounds, 3))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r.limits(s)
	r.advise()
	r.TookS = time.Since(r.Started).Round(100 * time.Millisecond).Seconds()
	return r, nil
}

// suites runs the suite of each strategy, at the same time: most of its cases wait most
// of the time.
func (r *Result) suites(ctx context.Context, s *stores, o Options) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, st := range r.Strategies {
		all.Go(func() {
			n := 0
			suite, err := s.suite(ctx, st.Name, o, func(of int, _ bool) {
				mu.Lock()
				defer mu.Unlock()
				n++
				o.Suite(st.Name, n, max(of, n+1)) // not all of them: its end is reported below
			})
			mu.Lock()
			defer mu.Unlock()
			o.Suite(st.Name, n, n)
			st.Suite = suite
			if err != nil {
				st.fail(fmt.Errorf("conformance: %w", err))
			}
		})
	}
	all.Wait()
}

func (s *Strategy) fail(err error) {
	if s.Error != "" {
		s.Error += "; "
	}
	s.Error += err.Error()
}

// limits says what these figures do not.
func (r *Result) limits(s *stores) {
	length := "0.5 s"
	if r.Quick {
		length = "0.2 s; cases that take long are left out"
	}
	r.Limits = append(r.Limits, "Each figure is the median of three runs in turn, of "+length+". Differences of a fifth mean nothing. The contending processes are Lockers with connections of their own, in one process.")
	if !s.own {
		r.Limits = append(r.Limits, "The server may have had other work, which the figures include. It was not crashed: those cases are left out.")
	}
}
