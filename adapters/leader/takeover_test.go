package leader_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
)

const takeoverTTL = time.Second

var strategies = map[string]func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){
	"setnx": setnx.New, "hashreentrant": hashreentrant.New, "blpop": blpop.New,
}

type candidateSpec struct{ Strategy, Addr, Key string }

// candidate is a process that stands for election: it prints a line when it waits, and one as its first act.
func candidate(p child.Parent, spec candidateSpec) error {
	ctx, stop := p.Context()
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: spec.Addr})
	defer rdb.Close()
	l, err := strategies[spec.Strategy](rdb, locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventWaiting {
			fmt.Fprintln(p, "waits")
		}
	})))
	if err != nil {
		return err
	}
	defer l.Close()
	_ = leader.Run(ctx, l, spec.Key, func(ctx context.Context, _ int64) error {
		fmt.Fprintln(p, "leads")
		<-ctx.Done()
		return nil
	}, leader.WithLockOptions(locker.WithTTL(takeoverTTL)))
	return nil
}

type process struct {
	*child.Child
	lines *bufio.Reader
}

func start(t *testing.T, spec candidateSpec) process {
	t.Helper()
	c, err := child.Start("candidate", spec, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop(10 * time.Second) })
	return process{c, bufio.NewReader(c)}
}

func (p process) says(t *testing.T, want string) {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, want+"\n", line)
}

// rounds is how many leaders are killed for a measurement. For figures, which take two minutes if all strategies are measured
// at the same time, and four on two processors without -parallel:
//
//	LOCKER_LEADER_ROUNDS=100 go test -v -parallel 3 -run Takeover ./adapters/leader
func rounds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("LOCKER_LEADER_ROUNDS"))
	if os.Getenv("LOCKER_LEADER_ROUNDS") == "" {
		n, err = 2, nil
	}
	require.NoError(t, err)
	return n
}

// took has how long something took: by the clock of package pace, which bounds use, and in real time.
type took struct{ paced, real []time.Duration }

func (d *took) add(from, to moment) {
	d.paced, d.real = append(d.paced, to.paced.Since(from.paced)), append(d.real, to.real.Sub(from.real))
}

type moment struct {
	paced pace.Moment
	real  time.Time
}

func now() moment { return moment{pace.Now(), time.Now()} }

// p99 prints both distributions, and returns the 99th percentile of the paced one.
func (d *took) p99(t *testing.T, what string) (p99 time.Duration) {
	t.Helper()
	for _, of := range []struct {
		clock string
		all   []time.Duration
	}{{"in real time", d.real}, {"by the clock of the bounds", d.paced}} {
		slices.Sort(of.all)
		at := func(p int) time.Duration {
			return of.all[min(len(of.all)*p/100, len(of.all)-1)].Round(10 * time.Microsecond)
		}
		t.Logf("%s, %d times, %s: median %v, p99 %v, most %v", what, len(of.all), of.clock, at(50), at(99), at(100))
		p99 = at(99)
	}
	return p99
}

// Leaders are killed as kill -9 does, at any moment between two renewals. From there to the first act of
// the next one, which is another process, it takes a TTL and 200 ms at most.
func TestTakeover(t *testing.T) {
	server := redistest.Shared(t)
	for name := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer pace.Keep()()
			spec := candidateSpec{name, server.Addr(), t.Name()}
			leads := start(t, spec)
			leads.says(t, "leads")
			var all took
			for range rounds(t) {
				next := start(t, spec)
				next.says(t, "waits")
				time.Sleep(rand.N(takeoverTTL / 3)) // where between two renewals
				killed := now()
				leads.Kill()
				next.says(t, "leads")
				all.add(killed, now())
				leads = next
			}
			require.LessOrEqual(t, all.p99(t, name+": kill -9 to the next leader's first act"), takeoverTTL+200*time.Millisecond)
		})
	}
}

// From the return of a function that steps down to the first act of the next leader it takes 50 ms at most, where
// waiters are woken; with setnx they poll.
func TestPoliteTakeover(t *testing.T) {
	server := redistest.Shared(t)
	for name, newLocker := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer pace.Keep()()
			ctx, stop := context.WithCancel(t.Context())
			began, left := make(chan moment, 1), make(chan moment, 1)
			var candidates sync.WaitGroup
			var both []*locker.Client
			for range 2 {
				l, err := newLocker(server.Client(t))
				require.NoError(t, err)
				defer l.Close()
				both = append(both, l)
				candidates.Go(func() {
					_ = leader.Run(ctx, l, t.Name(), func(ctx context.Context, _ int64) error {
						asked := leader.StepDownRequested(ctx)
						began <- now()
						select {
						case <-asked:
							left <- now()
							return leader.ErrSteppedDown
						case <-ctx.Done():
							return nil
						}
					}, leader.WithMinTerm(10*time.Millisecond), leader.WithBackoff(10*time.Millisecond, 10*time.Millisecond))
				})
			}
			<-began
			var all took
			for range 10 * rounds(t) {
				pace.Eventually(t, 10*time.Second, "the other one waits", func() bool {
					return both[0].Stats().Waiting+both[1].Stats().Waiting > 0
				})
				time.Sleep(20 * time.Millisecond) // it listens; the shortest term is over
				require.NoError(t, both[0].RequestRelease(ctx, t.Name()))
				from := <-left
				all.add(from, <-began)
			}
			stop()
			candidates.Wait()
			if most := all.p99(t, name+": a step-down to the next leader's first act"); name != "setnx" {
				require.LessOrEqual(t, most, 50*time.Millisecond)
			}
		})
	}
}
