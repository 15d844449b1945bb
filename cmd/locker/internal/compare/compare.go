package compare

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say what is compared.
type Options struct {
	Strategies []string      // of [Names]; default all that the servers allow
	URLs       []string      // of stores; none for servers that are started
	Nodes      []string      // URLs of redlock's
	Quick      bool          // the suite without the cases that take long
	NoSuite    bool          // benchmarks only
	Need       Need          // to be advised on; "" for all
	Runs       int           // of each benchmark
	Time       time.Duration // of a run
	Seed       uint64        // of the order of the runs
	Only       string        // of the suite's cases, a regular expression; "" for all
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
	before := loadAverage()
	s, err := openStores(ctx, o.URLs, o.Nodes)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if !s.own {
		defer func() { // Ctrl-C does not spare us this
			o.Begin("deleting what is left of the keys that contain " + s.mark)
			if left := s.cleanUp(context.WithoutCancel(ctx)); left != nil {
				err = left
			}
		}()
	}
	contestants, err := s.contestants(ctx, o)
	if err != nil {
		return nil, err
	}
	r = &Result{
		Schema: schema, Started: time.Now(), OwnServers: s.own, Quick: o.Quick, Seed: o.Seed, RunCount: o.Runs, RunS: o.Time.Seconds(), need: o.Need,
		Load:    Load{Before: before},
		Machine: fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
	}
	for _, c := range contestants {
		r.Strategies = append(r.Strategies, &Strategy{Name: c.name, Strategy: c.kind, Store: c.about, Properties: propertiesOf(c.kind), on: c})
	}
	o.Begin(fmt.Sprintf("benchmarks, %d runs of %d strategies in turn", o.Runs, len(r.Strategies)))
	if err := r.bench(ctx, s, o); err != nil {
		return nil, err
	}
	r.Load.After = loadAverage()
	r.Load.judge()
	if err := r.faults(ctx, s, o); err != nil {
		return nil, err
	}
	if !o.NoSuite && slices.ContainsFunc(contestants, func(c *contestant) bool { return c.suite }) {
		o.Begin("the conformance suite, all strategies in Redis side by side")
		r.suites(ctx, s, o)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r.limits(s, o)
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
		if !st.on.suite {
			continue
		}
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
	s.Error += strings.Join(slices.DeleteFunc(strings.Split(err.Error(), "\n"), func(line string) bool { return line == "" }), "; ")
}

// seconds converts a number of seconds.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// limits says what these figures do not.
func (r *Result) limits(s *stores, o Options) {
	r.Limits = append(r.Limits, fmt.Sprintf("Figures are the median of %d runs of %v (of a contended key: %v), in turns, with the least and the greatest run; figures of a held lock and of a process that waits are of three runs at most, and rank nothing. A strategy is called better than another one only from %d runs of each on, if the Mann-Whitney test finds with p < %v that it is better by more than %.0f %%: between two runs of this program smaller differences change. The contenders for a key are processes, not goroutines.",
		o.Runs, o.Time, seconds(r.BoutS), runsToRank, alpha, 100*(apart-1)))
	if !s.own && !s.embed {
		r.Limits = append(r.Limits, "The servers may have had other work, which the figures include. They were not crashed: those cases are left out.")
	}
	if len(r.Strategies) < 2 {
		r.Limits = append(r.Limits, "There is no advice: one strategy is no choice.")
	}
	for _, why := range s.missing {
		r.Limits = append(r.Limits, "Left out: "+why+".")
	}
	var on []*Strategy
	for _, st := range r.Strategies {
		if st.Suite != nil {
			on = append(on, st)
		}
	}
	if len(on) > 0 {
		r.Limits = append(r.Limits, "The conformance suite ran for "+strings.Join(namesOf(on), ", ")+"; in a clone of the repository 'make conformance' runs the suite of the others.")
	} else if !o.NoSuite {
		r.Limits = append(r.Limits, "The conformance suite did not run: it is for the strategies of a redis:// URL and of --nodes. In a clone of the repository 'make conformance' runs the suite of the others.")
	}
}
