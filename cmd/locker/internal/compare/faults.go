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

// Fault is what a holder and a waiter saw of a fault of the server. The fault is at 0.
type Fault struct {
	Kind      string  `json:"kind"`     // frozen, killed
	BackMS    float64 `json:"back_ms"`  // the server is there again
	ToldMS    float64 `json:"told_ms"`  // the holder knows that the lock is lost; -1: never
	GrantMS   float64 `json:"grant_ms"` // the waiter has the lock; -1: never
	OverlapMS float64 `json:"overlap_ms"`
}

// faulty is a server that can be broken.
type faulty struct {
	freeze, thaw, kill, revive func() // kill and revive are nil where it cannot be started again
}

const (
	faultTTL    = 1500 * time.Millisecond // of the lock of the holder
	faultLasts  = 2 * faultTTL
	faultBefore = 300 * time.Millisecond // until the waiter waits
	faultAfter  = 20 * time.Second       // that the waiter has at most
)

var faultKinds = []string{"frozen", "killed"}

// faults breaks the servers that this program has started: all at once, so that it takes as long as
// one. They are back when the lock is over: a Redis that is back earlier, and empty, has forgotten its
// locks, which is a promise and no measurement.
func (r *Result) faults(ctx context.Context, s *stores, o Options) error {
	for _, kind := range faultKinds {
		var on []*Strategy
		var servers []*faulty
		for _, st := range r.Strategies {
			if st.Error != "" || len(st.on.faulty) == 0 || kind == "killed" && st.on.faulty[0].kill == nil {
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

// fault has a fault seen by a holder and a waiter of each strategy.
func fault(ctx context.Context, kind string, on []*Strategy, servers []*faulty, s *stores) error {
	var all sync.WaitGroup
	broken, back := make(chan struct{}), make(chan struct{})
	var at, backAt time.Time
	for _, st := range on {
		ready := make(chan struct{})
		all.Go(func() {
			f, err := st.seen(ctx, kind, s, ready, broken, back, func() (time.Time, time.Time) { return at, backAt })
			if err != nil {
				st.fail(fmt.Errorf("%s: %w", kind, err))
			} else {
				st.Faults = append(st.Faults, f)
			}
		})
		<-ready
	}
	pause(ctx, faultBefore)
	at = time.Now()
	each(servers, func(f *faulty) { which(kind == "killed", f.kill, f.freeze)() })
	close(broken)
	pause(ctx, time.Until(at.Add(faultLasts)))
	each(servers, func(f *faulty) { which(kind == "killed", f.revive, f.thaw)() })
	backAt = time.Now()
	close(back)
	all.Wait()
	return ctx.Err()
}

func which(first bool, a, b func()) func() {
	if first {
		return a
	}
	return b
}

func each(servers []*faulty, do func(*faulty)) {
	var all sync.WaitGroup
	for _, f := range servers {
		all.Go(func() { do(f) })
	}
	all.Wait()
}

// seen returns what a holder and a waiter see of a fault, between broken and back.
func (st *Strategy) seen(ctx context.Context, kind string, s *stores, ready chan struct{}, broken, back <-chan struct{}, times func() (at, backAt time.Time)) (Fault, error) {
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
	<-broken
	var told time.Time
	select {
	case <-lease.Lost():
		told = time.Now()
	case <-waiting.Done():
	}
	<-got
	<-back
	at, backAt := times()
	since := func(t time.Time) float64 { return float64(t.Sub(at)) / float64(time.Millisecond) }
	f.BackMS = since(backAt)
	if !told.IsZero() {
		f.ToldMS = since(told)
	}
	if failed != nil {
		return f, errors.Join(ctx.Err(), failed)
	}
	f.GrantMS = since(granted)
	if told.IsZero() {
		return f, errors.New("the holder did not learn of its loss")
	}
	f.OverlapMS = max(0, f.ToldMS-f.GrantMS)
	return f, nil
}

// Timeline is the fault of each strategy, drawn to one scale.
type Timeline struct {
	Title, End string
	Rows       []TimelineRow
}

// TimelineRow is that of a strategy.
type TimelineRow struct {
	Name  string
	Fault Fault
	SVG   template.HTML
}

// timelines are those of the faults that were seen.
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

// Told is when the holder knew.
func (f Fault) Told() string { return milliseconds(f.ToldMS) }

// Grant is when the next one had the lock.
func (f Fault) Grant() string { return milliseconds(f.GrantMS) }

// Back is when the server was there again.
func (f Fault) Back() string { return milliseconds(f.BackMS) }

// Overlap is for how long there were two.
func (f Fault) Overlap() string { return milliseconds(f.OverlapMS) }
