package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

const (
	wideGoroutines = 64
	contenders     = 6                       // Lockers, each as a process has it
	waiters        = 8                       // Lockers that wait for one key
	watched        = 1500 * time.Millisecond // for how long: they look about once a second
)

// bench runs the benchmarks of all strategies, of so long each. They take turns for some
// rounds, so that what the machine does besides meets all of them.
func (r *Result) bench(ctx context.Context, s *stores, d time.Duration, rounds int) {
	runs := make(map[*Strategy][]*Bench)
	for range rounds {
		for _, st := range r.Strategies {
			if ctx.Err() != nil || st.Error != "" {
				continue
			}
			b, err := s.bench(ctx, st.Name, d)
			if err != nil {
				st.fail(fmt.Errorf("benchmarks: %w", err))
				continue
			}
			runs[st] = append(runs[st], b)
		}
	}
	for st, of := range runs {
		if len(of) < rounds {
			continue
		}
		st.Bench = &Bench{
			Solo:                medianBy(of, func(b *Bench) float64 { return b.Solo.PerS }).Solo,
			Wide:                medianBy(of, func(b *Bench) float64 { return b.Wide.PerS }).Wide,
			Contended:           medianBy(of, func(b *Bench) float64 { return b.Contended.GrantsPerS }).Contended,
			WaitingCommandsPerS: of[0].WaitingCommandsPerS,
		}
		if of[0].WaitingCommandsPerS != nil {
			st.Bench.WaitingCommandsPerS = medianBy(of, func(b *Bench) float64 { return *b.WaitingCommandsPerS }).WaitingCommandsPerS
		}
	}
}

// medianBy is the run with the median of a figure.
func medianBy(runs []*Bench, of func(b *Bench) float64) *Bench {
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b *Bench) int { return cmp.Compare(of(a), of(b)) })
	return sorted[len(sorted)/2]
}

// bench runs each benchmark of a strategy once.
func (s *stores) bench(ctx context.Context, name string, d time.Duration) (b *Bench, err error) {
	l, on, end, err := s.locker(name)
	if err != nil {
		return nil, err
	}
	defer end()
	b = &Bench{}
	if b.Solo, err = pairs(ctx, l, 1, d); err != nil {
		return nil, err
	}
	if b.Wide, err = pairs(ctx, l, wideGoroutines, d); err != nil {
		return nil, err
	}
	if b.Contended, err = s.contend(ctx, name, on, d); err != nil {
		return nil, err
	}
	b.WaitingCommandsPerS, err = s.wait(ctx, name, l, on)
	return b, err
}

// pairs locks and unlocks free keys.
func pairs(ctx context.Context, l locker.Locker, goroutines int, d time.Duration) (Pairs, error) {
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var wg sync.WaitGroup
	warm := time.Now().Add(d / 5)
	end := warm.Add(d)
	for i := range goroutines {
		wg.Go(func() {
			var took []time.Duration
			key := fmt.Sprintf("bench %d", i)
			for now := time.Now(); now.Before(end) && ctx.Err() == nil; {
				start := now
				err := locker.Do(ctx, l, key, func(context.Context) error { return nil })
				now = time.Now()
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				if start.After(warm) {
					took = append(took, now.Sub(start))
				}
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	wg.Wait()
	us := sortedBy(all, time.Microsecond)
	return Pairs{PerS: float64(len(all)) / d.Seconds(), P50US: quantile(us, 0.5), P99US: quantile(us, 0.99)}, failed
}

// contention has the measurements of several Lockers that contend for one key.
type contention struct {
	mu        sync.Mutex
	waits     []time.Duration
	handOvers []time.Duration
	unlocked  time.Time // when the last holder began to unlock
	grants    []float64 // of each
	failed    error
}

// contend has several Lockers fight for one key.
func (s *stores) contend(ctx context.Context, name string, on []*redis.Client, d time.Duration) (c Contended, err error) {
	var all []locker.Locker
	for range contenders {
		l, _, end, err := s.locker(name)
		if err != nil {
			return c, err
		}
		defer end()
		if err := locker.Do(ctx, l, "warm", func(context.Context) error { return nil }); err != nil {
			return c, err
		}
		all = append(all, l)
	}
	met := contention{grants: make([]float64, contenders)}
	before, _ := readLoad(ctx, on)
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	start := time.Now()
	var wg sync.WaitGroup
	for i, l := range all {
		wg.Go(func() {
			if err := met.fight(ctx, i, l); err != nil {
				met.mu.Lock()
				defer met.mu.Unlock()
				met.failed = err
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	after, err := readLoad(context.WithoutCancel(ctx), on)
	if n := float64(len(met.waits)); err == nil && n > 0 && after.commands > before.commands {
		commands, cpu := (after.commands-before.commands)/n, (after.cpu-before.cpu)/n*1e6
		c.CommandsPerGrant = &commands
		if s.own { // elsewhere it is others' work, too
			c.ServerCPUPerGrant = &cpu
		}
	}
	met.tell(&c, took)
	return c, met.failed
}

// fight locks and unlocks until ctx ends.
func (m *contention) fight(ctx context.Context, i int, l locker.Locker) error {
	for {
		asked := time.Now()
		lease, err := l.Lock(ctx, "contended")
		switch {
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			return err
		}
		now := time.Now()
		m.mu.Lock()
		m.waits = append(m.waits, now.Sub(asked))
		if !m.unlocked.IsZero() {
			m.handOvers = append(m.handOvers, now.Sub(m.unlocked))
		}
		m.grants[i]++
		m.unlocked = time.Now()
		m.mu.Unlock()
		if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

func (m *contention) tell(c *Contended, took time.Duration) {
	c.WaitsMS, c.HandOversUS = sortedBy(m.waits, time.Millisecond), sortedBy(m.handOvers, time.Microsecond)
	c.GrantsPerS = float64(len(m.waits)) / took.Seconds()
	c.WaitP50MS, c.WaitP99MS, c.WaitMaxMS = quantile(c.WaitsMS, 0.5), quantile(c.WaitsMS, 0.99), quantile(c.WaitsMS, 1)
	c.HandOverP50US, c.HandOverP99US = quantile(c.HandOversUS, 0.5), quantile(c.HandOversUS, 0.99)
	if most := slices.Max(m.grants); most > 0 {
		c.Fairness = slices.Min(m.grants) / most
	}
}

// wait counts what processes that wait for a held key send to Redis; nil if it does not
// count commands.
func (s *stores) wait(ctx context.Context, name string, l locker.Locker, on []*redis.Client) (*float64, error) {
	lease, err := l.Lock(ctx, "waited for")
	if err != nil {
		return nil, err
	}
	defer func() { _ = lease.Unlock(context.WithoutCancel(ctx)) }()
	waiting, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range waiters {
		l, _, end, err := s.locker(name)
		if err != nil {
			return nil, err
		}
		defer end()
		wg.Go(func() { _, _ = l.Lock(waiting, "waited for") })
	}
	bound, stop := context.WithTimeout(ctx, 300*time.Millisecond) // until they wait
	<-bound.Done()
	stop()
	start := time.Now()
	before, err := readLoad(ctx, on)
	bound, stop = context.WithTimeout(ctx, watched)
	<-bound.Done()
	stop()
	after, err2 := readLoad(ctx, on)
	took := time.Since(start)
	if err != nil || err2 != nil || after.commands == 0 {
		return nil, ctx.Err()
	}
	perS := (after.commands - before.commands) / took.Seconds() / waiters
	return &perS, nil
}

// load is the work of all servers together.
type load struct{ commands, cpu float64 }

// readLoad reads it: the commands that locks are made of as clients send them, not those
// that scripts call.
func readLoad(ctx context.Context, on []*redis.Client) (l load, err error) {
	for _, c := range on {
		stats, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			return l, err
		}
		for line := range strings.Lines(stats) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			switch name {
			case "evalsha", "eval", "blpop", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe":
				calls, _, _ := strings.Cut(rest, ",")
				n, _ := strconv.ParseFloat(calls, 64)
				l.commands += n
			}
		}
		cpu, err := c.Info(ctx, "cpu").Result()
		if err != nil {
			return l, err
		}
		for line := range strings.Lines(cpu) {
			for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
				if v, ok := strings.CutPrefix(strings.TrimSpace(line), field); ok {
					n, _ := strconv.ParseFloat(v, 64)
					l.cpu += n
				}
			}
		}
	}
	return l, nil
}
