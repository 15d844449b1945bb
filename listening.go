package locker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/wake"
)

const (
	listenTimeout = time.Second
	listenAgain   = time.Second            // a Listener is opened no sooner than that after the one before
	listenRefused = 30 * time.Second       // what needs a person
	listenLinger  = 500 * time.Millisecond // how long listening goes on when nothing waits for a signal
)

// listening is the state of a Locker that listens to signals while leases wait for requests.
type listening struct {
	wanted atomic.Int64 // tenures that wait for a request, and claims that may be kept
	live   atomic.Bool  // signals arrive
	quiet  atomic.Int64 // until when no session begins for claims that may be kept: one has just failed
	none   wake.Signal  // wanted has come to 0

	mu      sync.Mutex
	session *session // nil: the Locker does not listen
	last    *session // the present or the last one
	never   bool     // the driver cannot
}

// session is a time of listening. It has a goroutine.
type session struct {
	ready chan struct{} // closed when it listens, or has failed to
	over  chan struct{} // closed when the goroutine has ended
}

// unwanted notes that a tenure waits for no request any more. It may be called under the mutex.
func (g *listening) unwanted() {
	if g.wanted.Add(-1) == 0 {
		g.none.Send()
	}
}

// id returns the UUID of the Locker's claims.
func (e *Client) id() string { return e.idPrefix[:len(e.idPrefix)-1] }

// listen begins a session if need be, and waits until signals arrive, or a second.
func (e *Client) listen() {
	s := e.session()
	if s == nil {
		return
	}
	select {
	case <-s.ready:
		return
	default:
	}
	timer := time.NewTimer(listenTimeout)
	defer timer.Stop()
	select {
	case <-s.ready:
	case <-timer.C:
	case <-e.closed:
	}
}

// session returns the present session, or begins one; nil: there will be no signals.
func (e *Client) session() *session {
	g := &e.listening
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.session == nil && !g.never && !e.closing.Load() {
		before := g.last
		s := &session{make(chan struct{}), make(chan struct{})}
		g.session, g.last = s, s
		go func() {
			if before != nil {
				<-before.over // there is one Listener at most
			}
			e.hear(s)
		}()
	}
	return g.session
}

// done returns a channel that is closed when no session runs.
func (g *listening) done() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last == nil {
		return closedChan
	}
	return g.last.over
}

// endListening ends the session if nothing waits for a signal, and reports whether it did. Who waits from
// then on begins another one.
func (e *Client) endListening(never bool) bool {
	g := &e.listening
	g.mu.Lock()
	defer g.mu.Unlock()
	g.never = g.never || never
	live := g.live.Swap(false) // first: whoever is counted after that begins another session
	if g.wanted.Load() > 0 && !g.never && !e.closing.Load() {
		g.live.Store(live)
		return false
	}
	g.session = nil
	return true
}

// hear listens until the session ends. It opens a Listener anew when one has ended.
func (e *Client) hear(s *session) {
	defer close(s.over)
	ready := sync.OnceFunc(func() { close(s.ready) })
	defer ready()
	for warned := false; ; {
		opened := time.Now()
		l, err := e.openListener()
		ready()
		pause := listenAgain
		switch {
		case err == nil:
			e.listening.live.Store(true)
			ended := e.hearAll(l)
			e.listening.live.Store(false)
			l.Close()
			if ended {
				return
			}
		case !warned && !e.closing.Load():
			warned = true
			e.log.Warn("holders get no signals: requests to release do not arrive, and a lock that was broken is noticed by its next renewal", "strategy", e.name, "err", err)
		}
		if driver.IsPermanent(err) {
			pause = listenRefused
		}
		e.listening.quiet.Store(int64(e.sched.Now() + pause))
		if e.endListening(errors.Is(err, errors.ErrUnsupported)) {
			return
		}
		for !bound.Sleep(e.life, e.listening.none, time.Until(opened.Add(pause))) {
			if e.endListening(false) {
				return
			}
		}
	}
}

func (e *Client) openListener() (l driver.Listener, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = e.panicked("listening", v)
		}
	}()
	ctx, cancel := context.WithTimeout(e.life, listenTimeout)
	defer cancel()
	return e.signaller.Listen(ctx, e.id())
}

// hearAll hears all signals of l. It reports whether the session has ended; else l has.
func (e *Client) hearAll(l driver.Listener) (ended bool) {
	timer := time.NewTimer(listenLinger)
	defer timer.Stop()
	for {
		select {
		case sig, ok := <-l.C():
			if !ok {
				return false
			}
			e.heard(sig)
		case <-e.listening.none:
			timer.Reset(listenLinger)
		case <-timer.C:
			if e.endListening(false) {
				return true
			}
		case <-e.closed:
			return e.endListening(false)
		}
	}
}
