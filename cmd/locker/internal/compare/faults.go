package compare

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
)

// Fault describes a fault of the server as a holder and a waiter saw it. The fault is at 0.
type Fault struct {
	Kind      string  `json:"kind"`     // frozen, killed
	BackMS    float64 `json:"back_ms"`  // the server answers again
	ToldMS    float64 `json:"told_ms"`  // the holder knows that the lock is lost; -1: never
	GrantMS   float64 `json:"grant_ms"` // the waiter has the lock; -1: never
	OverlapMS float64 `json:"overlap_ms"`
}

// faulty is a server that can be broken.
type faulty struct {
	freeze, thaw, kill func()
	revive             func(context.Context) error // starts what was killed, and waits until it answers

	back time.Time // since when it answers again
}

// fault breaks the server.
func (f *faulty) fault(kind string) {
	if kind == killed {
		f.kill()
	} else {
		f.freeze()
	}
}

// repair ends the fault. A server that does not come back is missed by the waiter, which reports it.
func (f *faulty) repair(ctx context.Context, kind string) {
	if kind == killed {
		_ = f.revive(ctx)
	} else {
		f.thaw()
	}
	f.back = time.Now()
}

const (
	faultTTL    = 1500 * time.Millisecond // of the lock of the holder
	faultLasts  = 2 * faultTTL
	faultBefore = 300 * time.Millisecond // until the waiter waits
	faultAfter  = 20 * time.Second       // that the waiter has at most
)

const frozen, killed = "frozen", "killed"

var faultKinds = []string{frozen, killed}

// faults breaks the servers that this program has started: all at once, so that it takes as long as
// one. They are back when the lock is over: a Redis that is back earlier, and empty, has forgotten its
// locks, which is a promise and no measurement.
func (r *Result) faults(ctx context.Context, s *stores, o Options) error {
	for _, kind := range faultKinds {
		var on []*Strategy
		var servers []*faulty
		for _, st := range r.Strategies {
			if st.Error != "" || len(st.on.faulty) == 0 {
				continue
			}
			on = append(on, st)
			for _, server := range st.on.faulty {
				if !slices.Contains(servers, server) {
					servers = append(servers, server)
				}
			}
		}
		if len(on) == 0 {
			continue
		}
		o.Begin(fmt.Sprintf("the servers of %d strategies are %s for %v", len(on), kind, faultLasts))
		if err := fault(ctx, kind, on, servers, s); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// fault causes a fault, and notes what a holder and a waiter of each strategy see of it.
func fault(ctx context.Context, kind string, on []*Strategy, servers []*faulty, s *stores) error {
	var all sync.WaitGroup
	w := &when{broken: make(chan struct{}), back: make(chan struct{})}
	for _, st := range on {
		ready := make(chan struct{})
		all.Go(func() {
			f, err := st.seen(ctx, kind, s, ready, w)
			if err != nil {
				st.fail(fmt.Errorf("%s: %w", kind, err))
			} else {
				st.Faults = append(st.Faults, f)
			}
		})
		<-ready
	}
	pause(ctx, faultBefore)
	w.at = time.Now()
	each(servers, func(f *faulty) { f.fault(kind) })
	close(w.broken)
	pause(ctx, time.Until(w.at.Add(faultLasts)))
	each(servers, func(f *faulty) { f.repair(ctx, kind) })
	close(w.back)
	all.Wait()
	return ctx.Err()
}

func each(servers []*faulty, do func(*faulty)) {
	var all sync.WaitGroup
	for _, f := range servers {
		all.Go(func() { do(f) })
	}
	all.Wait()
}

// when is the time of a fault. It is there once broken is closed, and the servers' times are once back is.
type when struct {
	at           time.Time
	broken, back chan struct{}
}

// seen returns what a holder and a waiter see of a fault. It closes ready when it has the lock, or an error.
func (st *Strategy) seen(ctx context.Context, kind string, s *stores, ready chan struct{}, w *when) (Fault, error) {
	f := Fault{Kind: kind, ToldMS: -1, GrantMS: -1}
	here := sync.OnceFunc(func() { close(ready) })
	defer here()
	holder, release, err := st.place(s).open(ctx)
	if err != nil {
		return f, err
	}
	defer release()
	waiter, release2, err := st.place(s).open(ctx)
	if err != nil {
		return f, err
	}
	defer release2()
	key := "fault: " + kind + " " + st.Name // strategies of one Redis exclude each other
	lease, err := holder.Lock(ctx, key, locker.WithTTL(faultTTL), locker.WithWait(faultAfter))
	if err != nil {
		return f, err
	}
	here()
	waiting, cancel := context.WithTimeout(ctx, faultBefore+faultLasts+faultAfter)
	defer cancel()
	var granted time.Time
	var failed error
	got := make(chan struct{})
	go func() {
		defer close(got)
		next, err := waiter.Lock(waiting, key, locker.WithTTL(faultTTL)) // what it sent to the frozen server may take the lock for so long
		granted = time.Now()
		if failed = err; err == nil {
			failed = next.Unlock(context.WithoutCancel(ctx))
		}
	}()
	<-w.broken
	var told time.Time
	select {
	case <-lease.Lost():
		told = time.Now()
	case <-waiting.Done():
	}
	<-got
	<-w.back
	switch {
	case failed != nil:
		return f, errors.Join(ctx.Err(), failed)
	case told.IsZero():
		return f, errors.New("the holder did not learn of its loss")
	}
	return f.timed(st.on.faulty, w.at, told, granted), nil
}

// timed fills in the times.
func (f Fault) timed(servers []*faulty, at, told, granted time.Time) Fault {
	since := func(t time.Time) float64 { return float64(t.Sub(at)) / float64(time.Millisecond) }
	f.ToldMS, f.GrantMS = since(told), since(granted)
	f.OverlapMS = max(0, f.ToldMS-f.GrantMS)
	for _, server := range servers {
		f.BackMS = max(f.BackMS, since(server.back))
	}
	f.BackMS = min(f.BackMS, f.GrantMS) // a waiter may find the server before our probe does, or a majority before the last node
	return f
}

// Timeline is the fault of each strategy, drawn to one scale.
type Timeline struct {
	Title, End string
	Rows       []TimelineRow
}

// TimelineRow draws the fault of one strategy.
type TimelineRow struct {
	Name  string
	Fault Fault
	SVG   template.HTML
}

// timelines returns the timelines of the faults that were seen.
func (r *Result) timelines() (all []Timeline) {
	for _, kind := range faultKinds {
		t := Timeline{Title: "The server is " + kind + ", and back later"}
		end := 0.0
		for _, s := range r.Strategies {
			for _, f := range s.Faults {
				if f.Kind == kind {
					t.Rows = append(t.Rows, TimelineRow{Name: s.Name, Fault: f})
					end = max(end, f.GrantMS, f.ToldMS, f.BackMS)
				}
			}
		}
		for i := range t.Rows {
			t.Rows[i].SVG = t.Rows[i].Fault.svg(end * 1.1)
		}
		if t.End = milliseconds(end * 1.1); len(t.Rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// svg has three bars: the fault, the holder's time, and the next one's.
func (f Fault) svg(end float64) template.HTML {
	const before = 0.1 // of the picture is before the fault
	x := func(at float64) float64 { return columns * (before + (1-before)*at/end) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d 30" preserveAspectRatio="none" height="30" aria-hidden="true">`, columns)
	bar := func(from, to, y, height float64, style string) {
		if to > from {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%g" width="%.1f" height="%g" %s/>`, from, y, to-from, height, style)
		}
	}
	bar(x(0), x(f.BackMS), 0, 30, `fill="currentColor" opacity=".13"`)
	bar(0, x(f.ToldMS), 3, 10, `fill="`+hex(colours[0])+`"`)
	if f.GrantMS >= 0 {
		bar(x(f.GrantMS), columns, 17, 10, `fill="`+hex(colours[2])+`"`)
		bar(x(f.GrantMS), x(f.ToldMS), 0, 30, `fill="#d03030"`) // both held it
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // numbers only
}

func milliseconds(v float64) string {
	if v < 0 {
		return "never"
	}
	return fmt.Sprintf("%.0f ms", v)
}

// Told returns when the holder knew.
func (f Fault) Told() string { return milliseconds(f.ToldMS) }

// Grant returns when the next one had the lock.
func (f Fault) Grant() string { return milliseconds(f.GrantMS) }

// Back returns when the server was there again.
func (f Fault) Back() string { return milliseconds(f.BackMS) }

// Overlap returns for how long there were two.
func (f Fault) Overlap() string { return milliseconds(f.OverlapMS) }
