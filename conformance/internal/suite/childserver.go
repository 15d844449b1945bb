package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
)

// ServeChild does not return in a process started by [StartChild], but does what
// that asks of it, with a Locker made by newLocker of the spec given there. In
// other processes it does nothing.
func ServeChild(newLocker func(spec string, opts ...locker.Option) (locker.Locker, error)) {
	child.Serve(childKind, func(parent child.Parent, spec string) error {
		l, err := newLocker(spec, WithObserver(nil))
		if err != nil {
			return err
		}
		s := &childServer{l: l, out: json.NewEncoder(parent), leases: map[int]*locker.Lease{}}
		for in := json.NewDecoder(parent); ; {
			var r childRequest
			if in.Decode(&r) != nil {
				return nil // the parent is gone, or done with us
			}
			go s.do(r)
		}
	})
}

// childServer is the child's side.
type childServer struct {
	l locker.Locker

	mu     sync.Mutex
	out    *json.Encoder
	leases map[int]*locker.Lease
}

func (s *childServer) say(a childAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(a)
}

func (s *childServer) do(r childRequest) {
	a := childAnswer{ID: r.ID}
	var err error
	s.mu.Lock()
	lease := s.leases[r.Lease]
	s.mu.Unlock()
	switch r.Op {
	case "lock":
		lease, err = s.lock(r)
		if err == nil {
			a.Token = lease.Token()
			defer func() {
				<-lease.Lost()
				s.say(childAnswer{ID: r.ID, Event: "lost"})
			}()
		}
	case "unlock":
		err = lease.Unlock(context.Background())
	case "renew":
		err = lease.Renew(context.Background())
	case "ask":
		a.N = askUntilLost(lease)
	case "contend":
		a.N, err = s.contend(r)
	default:
		err = fmt.Errorf("no such op: %q", r.Op)
	}
	if err != nil {
		a.Err = err.Error()
		for i, kind := range childErrors {
			if errors.Is(err, kind) {
				a.Kinds = append(a.Kinds, i)
			}
		}
	}
	s.say(a)
}

func (s *childServer) lock(r childRequest) (*locker.Lease, error) {
	ctx := context.Background()
	opts := []locker.LockOption{locker.WithTTL(r.Lock.TTL)}
	if r.Lock.WithoutRenewal {
		opts = append(opts, locker.WithoutRenewal())
	}
	if r.Lock.Owner != "" {
		ctx = locker.ContextWithOwner(ctx, r.Lock.Owner)
	}
	f := s.l.Lock
	if r.Lock.Try {
		f = s.l.TryLock
	}
	ctx, waiting := marked(ctx, r.Lock.Key)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-waiting:
			s.say(childAnswer{ID: r.ID, Event: "waiting"})
		case <-done:
		}
	}()
	lease, err := f(ctx, r.Lock.Key, opts...)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leases[r.ID] = lease
	}
	return lease, err
}

// askUntilLost asks a lease all the time whether it is held, and returns how
// often the answer was yes at or after its deadline.
func askUntilLost(lease *locker.Lease) (wrong int) {
	ctx := lease.Context(context.Background())
	for {
		// In this order: what was over at now stays over.
		now := time.Now()
		over := !now.Before(lease.Deadline())
		if ctx.Err() != nil {
			return wrong
		}
		if over {
			wrong++
		}
		time.Sleep(time.Millisecond) // all the time, but not all of the processor
	}
}

// contend enters r.N times a section in which r.File must not exist yet, and
// returns how often it did.
func (s *childServer) contend(r childRequest) (overlaps int, err error) {
	for range r.N {
		err := locker.Do(context.Background(), s.l, r.Lock.Key, func(context.Context) error {
			f, err := os.OpenFile(r.File, os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, os.ErrExist) {
				overlaps++
				return nil
			}
			if err != nil {
				return err
			}
			defer func() { _ = os.Remove(r.File) }()
			time.Sleep(5 * time.Millisecond) // the section
			return f.Close()
		}, locker.WithTTL(r.Lock.TTL))
		if err != nil {
			return overlaps, err
		}
	}
	return overlaps, nil
}
