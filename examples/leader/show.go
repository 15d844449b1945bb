package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
)

// show has the events that happen to the candidates, and their expected outcome.
type show struct {
	began      time.Time
	mu         sync.Mutex // of out
	out        io.Writer
	candidates map[string]*candidate
	ledger     *ledger
	crashed    chan bool // what a crashed candidate waits for
}

func newShow(out io.Writer, every time.Duration) *show {
	s := &show{began: time.Now(), out: out, candidates: make(map[string]*candidate)}
	s.ledger = &ledger{writes: make(chan write), tokens: fence.NewMemory()}
	for _, name := range []string{"ann", "bob", "cat"} {
		s.candidates[name] = &candidate{name: name, ledger: s.ledger, every: every, say: s.say, freeze: make(chan chan bool)}
	}
	return s
}

func (s *show) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%5.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// play has all candidates stand, and ends when the story is over or ctx is.
func (s *show) play(ctx context.Context, url string) error {
	ctx, stop := context.WithCancel(ctx)
	s.ledger.over = ctx.Done()
	s.crashed = make(chan bool)
	var ended sync.WaitGroup
	defer func() {
		stop()
		close(s.crashed)
		ended.Wait()
		for _, c := range s.candidates {
			if c.close != nil {
				c.close()
			}
		}
	}()
	for _, c := range s.candidates {
		if err := c.connect(ctx, url); err != nil {
			return err
		}
	}
	for _, c := range s.candidates {
		ended.Go(func() { _ = c.stand(ctx) }) // it prints what happens by itself
	}
	if err := s.pause(ctx); err != nil {
		return err
	}
	last, err := s.crash(ctx)
	if err != nil {
		return err
	}
	s.say("-- this is the end: %s steps down", last.who)
	return nil
}

// pause stops a leader before a write until another one leads.
func (s *show) pause(ctx context.Context) error {
	old, err := s.settled(ctx, 3)
	if err != nil {
		return err
	}
	wake := make(chan bool)
	if err := s.freeze(ctx, old.who, wake); err != nil {
		return err
	}
	defer close(wake)
	s.say("-- %s is paused before a write, and an operator takes its lock away", old.who)
	if err := s.forceUnlock(ctx, old.who); err != nil {
		return err
	}
	next, err := s.settled(ctx, 3)
	if err != nil {
		return err
	}
	s.say("-- %s wakes up and writes", old.who)
	select {
	case wake <- true:
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		w, err := s.next(ctx)
		switch {
		case err != nil:
			return err
		case w.who == old.who && w.token == old.token && !w.refused:
			return fmt.Errorf("%s wrote with token %d after %s had written with token %d", old.who, old.token, next.who, next.token)
		case w.refused:
			return nil
		}
	}
}

// crash has a leader die, and returns a write of the one that follows.
func (s *show) crash(ctx context.Context) (next write, err error) {
	old, err := s.settled(ctx, 3)
	if err != nil {
		return next, err
	}
	if err := s.freeze(ctx, old.who, s.crashed); err != nil {
		return next, err
	}
	s.say("-- %s crashes: its lock is free after %v", old.who, ttl)
	s.candidates[old.who].close() // there is no renewal any more, and no Unlock
	next, err = s.settled(ctx, 3)
	if err == nil && next.token <= old.token {
		err = fmt.Errorf("token %d of %s came after token %d", next.token, next.who, old.token)
	}
	return next, err
}

// next returns the next write.
func (s *show) next(ctx context.Context) (write, error) {
	select {
	case w := <-s.ledger.writes:
		return w, nil
	case <-ctx.Done():
		return write{}, ctx.Err()
	}
}

// settled waits until a leader has written n times, and returns the last of these writes.
func (s *show) settled(ctx context.Context, n int) (last write, err error) {
	for times := 0; times < n; {
		w, err := s.next(ctx)
		switch {
		case err != nil:
			return last, err
		case w.refused:
			continue
		case w != last:
			times = 0
		}
		last = w
		times++
	}
	s.say("%s: has written %d times", last.who, n)
	return last, nil
}

// freeze stops a candidate at its pause point.
func (s *show) freeze(ctx context.Context, who string, wake chan bool) error {
	for {
		select {
		case s.candidates[who].freeze <- wake:
			return nil
		case <-s.ledger.writes:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forceUnlock takes the lock from the leader, as `locker unlock --force` does.
func (s *show) forceUnlock(ctx context.Context, leader string) error {
	for name, c := range s.candidates {
		if name == leader {
			continue
		}
		admin, ok := locker.ClientOf(c.locks)
		if !ok {
			break
		}
		holder, err := admin.Inspect(ctx, key)
		if err != nil {
			return err
		}
		return admin.ForceUnlock(ctx, holder)
	}
	return errors.New("this strategy does not show who holds a lock")
}
