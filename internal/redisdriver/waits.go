package redisdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// waits are the callers of a lane that wait for an answer. A caller waits for its answer and
// for the end of its own context. The lane ends commands whose own time is over, or whose Locker
// was closed: one timer is set for all of them.
type waits struct {
	first, last *flight
	timer       *time.Timer
	set         time.Time       // what it is set to: no deadline is earlier; zero: it is not
	locker      context.Context // by whose end commands end, once there was one
}

// enter has f's caller wait; l.mu is held.
func (l *lane) enter(ctx context.Context, f *flight) {
	_, f.locker = bound.Ends(ctx)
	f.end = bound.Own(ctx)
	w := &l.waits
	if f.before = w.last; w.last == nil {
		w.first = f
	} else {
		w.last.behind = f
	}
	w.last = f
	l.arm(f.end)
	if f.locker != w.locker && f.locker != nil {
		w.locker = f.locker
		context.AfterFunc(f.locker, l.endWaits)
	}
}

// arm has the timer fire no later than end; the zero time is never.
func (l *lane) arm(end time.Time) {
	w := &l.waits
	switch {
	case end.IsZero() || !w.set.IsZero() && !end.Before(w.set):
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(end), l.endWaits)
	default:
		w.timer.Reset(time.Until(end))
	}
	w.set = end
}

// endWaits has those leave whose time is over.
func (l *lane) endWaits() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.waits.set = time.Time{}
	for f := l.waits.first; f != nil; {
		next := f.behind
		switch {
		case f.locker != nil && f.locker.Err() != nil:
			l.leave(f, context.Canceled)
		case !f.end.IsZero() && !now.Before(f.end):
			l.leave(f, context.DeadlineExceeded)
		default:
			l.arm(f.end)
		}
		f = next
	}
}

// exit ends the wait of f's caller; l.mu is held.
func (l *lane) exit(f *flight) {
	w := &l.waits
	if f.before == nil {
		w.first = f.behind
	} else {
		f.before.behind = f.behind
	}
	if f.behind == nil {
		w.last = f.before
	} else {
		f.behind.before = f.before
	}
	f.before, f.behind = nil, nil
	f.done <- struct{}{}
}

// leave has f's caller leave unless it has its answer; l.mu is held.
func (l *lane) leave(f *flight, end error) {
	switch f.state {
	case flightQueued:
		l.queue[f.place-l.taken] = nil // looking for it would be quadratic where thousands leave
		l.gone++
		f.left = notSent(end)
	case flightSent:
		f.left = fmt.Errorf("the store has not answered: %w", end)
		f.over = make(chan struct{})
		f.until = time.Now().Add(l.hungAfter())
	default:
		return
	}
	f.state = flightLeft
	l.exit(f)
}

// await returns when f is answered, or its caller has to leave.
func (l *lane) await(ctx context.Context, f *flight) (left bool, err error) {
	caller, _ := bound.Ends(ctx)
	if end := caller.Done(); end == nil {
		<-f.done
	} else {
		select {
		case <-f.done:
		case <-end:
			err := caller.Err() // it may be the user's own
			l.mu.Lock()
			l.leave(f, err)
			l.mu.Unlock()
			<-f.done
		}
	}
	if f.left != nil {
		return f.over != nil, f.left
	}
	return false, f.err
}

// answered tells the callers of fs.
func (l *lane) answered(fs []*flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range fs {
		if f.state == flightLeft {
			close(f.over)
			continue
		}
		f.state = flightAnswered
		l.exit(f)
	}
}
