package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
)

const (
	wideGoroutines = 64
	waiters        = 8                       // Lockers that wait for one key
	watched        = 1500 * time.Millisecond // for how long: they look about once a second
	held           = 300                     // locks at a time
	heldInterval   = time.Second             // in which each of them is renewed; their TTL has room for a machine that stands still
	longestBout    = 4                       // by which contended runs are made longer at most, where little happens
)

// bench runs the benchmarks. In each round every strategy has a run, in an order that is drawn
// anew, so that what the machine does besides meets all of them.
type bench struct {
	o       Options
	all     []*Strategy
	lockers map[*Strategy]*locker.Client
	bout    time.Duration // how long a contended run is: the longest wait depends on it, so it is one for all
	ring    *ring
	met     map[*Strategy]map[string]*series
	calm    []float64 // of the calibration
	fewest  int       // changes of a strategy in the round that warms up
}

// series collects the runs of a metric.
type series struct {
	runs   []float64
	events int
	cut    []float64 // those of the runs that are of a wait which the end of the run cut off
}

func (r *Result) bench(ctx context.Context, s *stores, o Options) error {
	b := &bench{
		o: o, all: r.Strategies, lockers: make(map[*Strategy]*locker.Client), bout: 2 * o.Time,
		met: make(map[*Strategy]map[string]*series), fewest: math.MaxInt,
	}
	var places []place
	for _, st := range b.all {
		p := st.place(s)
		l, release, err := p.open(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		defer release()
		b.lockers[st], b.met[st] = l, make(map[string]*series)
		if st.on.kind != "memory" {
			places = append(places, p)
		}
	}
	var err error
	if b.ring, err = newRing(places, s); err != nil {
		return err
	}
	defer b.ring.close()
	random := rand.New(rand.NewPCG(o.Seed, 1))
	order := slices.Clone(b.all)
	for round := range o.Runs + 1 { // the first one warms up
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, st := range order {
			b.calm = append(b.calm, calibrate())
			if st.Error != "" {
				continue
			}
			if err := b.round(ctx, st, round == 0); err != nil {
				st.fail(fmt.Errorf("benchmarks: %w", err))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if round == 0 { // enough events in all, or as many as there is time for
			need := 3 * fewestChanges / float64(o.Runs) / float64(max(1, b.fewest))
			b.bout = time.Duration(float64(b.bout) * min(longestBout, max(1, need)))
			r.BoutS = b.bout.Seconds()
		}
	}
	b.long(ctx, order, s)
	b.tell(r)
	return ctx.Err()
}

// long has the runs that take seconds, a few of each, and those of the pictures.
func (b *bench) long(ctx context.Context, order []*Strategy, s *stores) {
	for range max(1, min(3, b.o.Runs/10)) {
		for _, st := range order {
			if st.Error != "" {
				continue
			}
			if err := errors.Join(b.wait(ctx, st, s), b.hold(ctx, st, s)); err != nil {
				st.fail(fmt.Errorf("benchmarks: %w", err))
			}
		}
	}
	for _, st := range order {
		if st.Error != "" || st.on.kind == "memory" {
			continue
		}
		bout, f, err := b.ring.fight(ctx, st.Name, 10*b.o.Time)
		if err != nil {
			st.fail(fmt.Errorf("benchmarks: %w", err))
			continue
		}
		st.Second = bout.second(f)
	}
}

// tell makes the figures.
func (b *bench) tell(r *Result) {
	r.Load.Calibration = newFigure(metric{}, b.calm, len(b.calm))
	for st, met := range b.met {
		if st.Error != "" {
			continue
		}
		st.Figures = make(map[string]*Figure)
		for id, of := range met {
			if f := newFigure(metricOf(id), of.runs, of.events); f != nil {
				f.cutOff(of.cut)
				st.Figures[id] = f
			}
		}
	}
}

// add adds a run of a metric.
func (b *bench) add(st *Strategy, id string, value float64, events int) {
	of := b.met[st][id]
	if of == nil {
		of = &series{}
		b.met[st][id] = of
	}
	of.runs, of.events = append(of.runs, value), of.events+events
}

// place returns where the locks of a strategy are.
func (st *Strategy) place(s *stores) place {
	place := place{Name: st.Name, URL: st.on.url, Mark: s.mark}
	for _, node := range st.on.nodes {
		place.Nodes = append(place.Nodes, bareURL(node))
	}
	return place
}

// round makes a run of a strategy.
func (b *bench) round(ctx context.Context, st *Strategy, warm bool) error {
	l := b.lockers[st]
	solo, _, err := pairs(ctx, l, 1, b.o.Time)
	if err != nil {
		return err
	}
	wide, perS, err := pairs(ctx, l, wideGoroutines, b.o.Time)
	if err != nil {
		return err
	}
	if !warm {
		b.add(st, "pair", quantile(solo, 0.5), len(solo))
		b.add(st, "wide", perS, len(wide))
	}
	if st.on.kind == "memory" {
		return nil
	}
	before := st.on.meter.read(ctx)
	_, f, err := b.ring.fight(ctx, st.Name, b.bout)
	if err != nil {
		return err
	}
	if warm {
		b.fewest = min(b.fewest, f.changes)
		return nil
	}
	b.addFight(st, f, st.on.meter.read(ctx).since(before))
	return nil
}

func (b *bench) addFight(st *Strategy, f *fought, used load) {
	b.add(st, "changes", f.changesS, f.changes)
	b.add(st, "grants", f.perS, f.changes)
	b.add(st, "longest", f.longest, f.changes)
	if of := b.met[st]["longest"]; f.cutLongest {
		of.cut = append(of.cut, f.longest)
	}
	b.add(st, "share", f.share, f.changes)
	if f.changes == 0 {
		return
	}
	b.add(st, "gap", quantile(f.gaps, 0.5), f.changes)
	if used.commands >= 0 {
		b.add(st, "commands", used.commands/float64(f.changes), f.changes)
	}
	if used.cpu >= 0 {
		b.add(st, "cpu", float64(used.cpu.Microseconds())/float64(f.changes), f.changes)
	}
	st.waits, st.gaps = append(st.waits, f.waits...), append(st.gaps, f.gaps...)
}

// pairs locks and unlocks free keys. It returns how many µs each took, sorted, and how many there were in a second. A pair that
// the end finds under way counts, with its time.
func pairs(ctx context.Context, l locker.Locker, goroutines int, d time.Duration) (each []float64, perS float64, failed error) {
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(d)
	for i := range goroutines {
		wg.Go(func() {
			var took []time.Duration
			var err error
			key := fmt.Sprintf("bench %d", i)
			now := start
			for err == nil && now.Before(end) && ctx.Err() == nil {
				begun := time.Now()
				err = locker.Do(ctx, l, key, func(context.Context) error { return nil })
				now = time.Now()
				took = append(took, now.Sub(begun))
			}
			mu.Lock()
			defer mu.Unlock()
			all, perS = append(all, took...), perS+float64(len(took))/max(d, now.Sub(start)).Seconds()
			failed = cmp.Or(failed, err) // the others fail for the same reason
		})
	}
	wg.Wait()
	return sortedBy(all, time.Microsecond), perS, failed
}

// wait measures what processes that wait for a held key cost. Here they are Lockers with
// connections of their own.
func (b *bench) wait(ctx context.Context, st *Strategy, s *stores) error {
	if !st.on.meter.some() {
		return nil
	}
	lease, err := b.lockers[st].Lock(ctx, "waited for")
	if err != nil {
		return err
	}
	defer func() { _ = lease.Unlock(context.WithoutCancel(ctx)) }()
	waiting, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range waiters {
		l, release, err := st.place(s).open(ctx)
		if err != nil {
			return err
		}
		defer release()
		wg.Go(func() { _, _ = l.Lock(waiting, "waited for") })
	}
	pause(ctx, 300*time.Millisecond) // until they wait
	start, before := time.Now(), st.on.meter.read(ctx)
	pause(ctx, watched)
	used, took := st.on.meter.read(ctx).since(before), time.Since(start).Seconds()
	if used.commands >= 0 {
		b.add(st, "waiting", used.commands/took/waiters, 1)
	}
	if used.cpu >= 0 {
		b.add(st, "waitingcpu", float64(used.cpu.Microseconds())/took/waiters, 1)
	}
	return ctx.Err()
}

// hold measures what held locks cost.
func (b *bench) hold(ctx context.Context, st *Strategy, s *stores) (err error) {
	l, release, err := st.place(s).open(ctx, locker.WithRenewInterval(heldInterval))
	if err != nil {
		return err
	}
	defer release()
	leases := make([]*locker.Lease, held)
	take := func(i int) (err error) {
		leases[i], err = l.Lock(ctx, fmt.Sprint("held ", i))
		return err
	}
	defer func() { err = cmp.Or(err, unlockAll(context.WithoutCancel(ctx), leases)) }()
	if err := take(0); err != nil { // the connections are there
		return err
	}
	before := heap()
	for i := 1; i < held; i++ {
		if err := take(i); err != nil {
			return err
		}
	}
	if after := heap(); after > before {
		b.add(st, "heldmemory", float64(after-before)/(held-1), 1)
	}
	was := st.on.meter.read(ctx)
	pause(ctx, 2*heldInterval) // two renewals of each
	if used := st.on.meter.read(ctx).since(was); used.cpu >= 0 {
		b.add(st, "heldcpu", float64(used.cpu.Microseconds())/held/2, 1)
	}
	return ctx.Err()
}

// unlockAll gives all leases back at the same time: a far or silent server delays it as long as one Unlock.
func unlockAll(ctx context.Context, leases []*locker.Lease) (failed error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, lease := range leases {
		if lease == nil {
			continue
		}
		all.Go(func() {
			err := lease.Unlock(ctx)
			mu.Lock()
			defer mu.Unlock()
			failed = cmp.Or(failed, err) // the others fail for the same reason
		})
	}
	all.Wait()
	return failed
}

// heap returns the memory that is in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// pause waits for so long, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	bound, stop := context.WithTimeout(ctx, d)
	defer stop()
	<-bound.Done()
}
