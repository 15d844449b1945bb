package soak

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/distlock/locker"
)

// guest is the caller of each process who makes a Locker for each Lock, and closes it,
// one time in two while it holds.
type guest struct{ *caller }

func newGuest(w *worker) guest {
	c := newCaller(w, w.Callers)
	c.visits = true
	return guest{c}
}

func (g guest) run() {
	for !g.draining.Load() {
		g.visit()
		// Visits come at random moments.
		time.Sleep(50*time.Millisecond + g.upTo(250*time.Millisecond))
	}
}

func (g guest) visit() {
	s := g.section()
	s.flags |= flagGuest
	var opts []locker.Option
	if g.oneIn(4) {
		opts = append(opts, locker.WithoutFencing())
		s.flags |= flagUnfenced
	}
	if g.oneIn(8) {
		g.misuse(s)
	}
	l, err := g.open(opts...)
	if err != nil {
		s.wrong("New: %v", err)
		return
	}
	g.locker = l
	ctx, lockOpts, wait := s.plan()
	switch {
	case !s.acquire(ctx, lockOpts, wait):
	case g.oneIn(2):
		s.work(ctx)
		s.unlock(0, s.lease)
	default:
		if g.oneIn(2) {
			s.work(ctx)
		}
		s.close()
		return
	}
	s.shut()
}

// shut closes the Locker. That may fail only by taking long, which a process that
// stands still does.
func (s *section) shut() {
	began := time.Now()
	err := s.c.locker.Close()
	late := errors.Is(err, locker.ErrUnavailable) && time.Since(began) > closeGivesUp
	if err != nil && !late {
		s.wrong("Close: %v", err)
	}
}

// misuse asks for a Locker that has to be refused as invalid.
func (g guest) misuse(s *section) {
	for name, opt := range map[string]locker.Option{
		"an unknown driver option": locker.WithDriverOption(struct{ unknown int }{}),
		"an invalid prefix":        locker.WithPrefix("\xff"),
		"an invalid TTL":           locker.WithTTL(0),
	} {
		l, err := g.open(opt)
		if err == nil {
			_ = l.Close()
		}
		if !errors.Is(err, locker.ErrInvalid) {
			s.wrong("New with %s: %v, want ErrInvalid", name, err)
		}
	}
}

// close closes the Locker of a lease, and sees to what is promised for that.
func (s *section) close() {
	const soon = 2 * time.Second // for goroutines to learn of it
	s.note(recClose, now(), record{deadline: at(s.lease.Deadline())})
	s.shut()
	s.note(recClosed, now(), record{})
	ended := time.NewTimer(soon)
	defer ended.Stop()
	select {
	case <-s.lease.Lost():
	case <-ended.C:
		select {
		case <-s.lease.Lost():
		default:
			s.wrong("the lease of a closed Locker is not lost")
		}
	}
	if lease, err := s.c.locker.Lock(context.Background(), s.key); !errors.Is(err, locker.ErrClosed) {
		s.wrong("Lock of a closed Locker returned %v, %v", lease, err)
	}
	s.unlock(0, s.lease) // its key is still to be freed
	s.shut()             // once more
}

// growWithin is how long grow locks at most.
const growWithin = 20 * time.Second

// grow locks keys one after the other, each for once, and reports how many bytes and
// goroutines they have cost for good; 0 if that is not to be told from nothing. Keys that
// are kept cost that in each round; connections, of 64 KB each, do not.
func (w *worker) grow() (bytes int64, goroutines int) {
	const (
		rounds = 3
		warmUp = 200
		n      = 2000
		most   = 100 * n // bytes; keys that are kept would be four times that
		some   = 50      // goroutines, of connections
	)
	s := section{c: newCaller(w, 0), rec: record{op: w.ops.Add(1)}}
	end := time.Now().Add(growWithin)
	use := func(from, to int) {
		for i := from; i < to && time.Now().Before(end); i++ {
			key := fmt.Sprintf("once:%0400d", i)
			lease, err := w.locker.TryLock(context.Background(), key)
			if err == nil {
				err = lease.Unlock(context.Background())
			}
			if err != nil && !errors.Is(err, locker.ErrUnavailable) {
				s.wrong("nobody else wants the lock: %v", err)
				return
			}
		}
	}
	use(0, warmUp)
	for round := 0; round < rounds && time.Now().Before(end); round++ {
		heapBefore, before := heap(), runtime.NumGoroutine()
		use(warmUp+round*n, warmUp+(round+1)*n)
		// The garbage collector and connections tell of no event.
		for patience := time.Now().Add(leakPatience); ; time.Sleep(100 * time.Millisecond) {
			bytes, goroutines = heap()-heapBefore, runtime.NumGoroutine()-before
			if bytes < most {
				bytes = 0
			}
			if goroutines < some {
				goroutines = 0
			}
			if bytes == 0 && goroutines == 0 {
				return 0, 0
			}
			if time.Now().After(patience) {
				break
			}
		}
	}
	return bytes, goroutines
}
