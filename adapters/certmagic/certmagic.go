// Package certmagiclocker coordinates the instances of a program that share a certificate
// storage of github.com/caddyserver/certmagic, by distributed locks.
//
//	storage, err := certmagiclocker.New(&certmagic.FileStorage{Path: "/mnt/certs"}, l)
//	...
//	certmagic.Default.Storage = storage
//
// Certificates stay where they are, only the locking changes: certmagic's own file locks
// rely on the clocks of the hosts and on a file system that creates files exclusively,
// which object stores and some network file systems do not.
//
// While the lock is held, no second instance obtains or renews the certificate, also if contexts name the same
// owner ([locker.ContextWithOwner]). The lock is renewed for as long as that takes (certmagic tries for up to 30 days), and free
// a TTL after a crash. The optional interfaces certmagic.TryLocker and
// certmagic.LockLeaseRenewer are implemented.
//
// Work that runs under a lock does not learn of the lock's loss: certmagic has no way
// to report it, and passes on no fencing token. After a loss the work may be done twice, which costs one
// certificate more than needed. [locker.WithLogger] logs the loss. Before each further attempt certmagic
// renews the lock, see [Storage.RenewLockLease], and looks whether there is a certificate
// by now.
package certmagiclocker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

var _ interface {
	certmagic.Storage
	certmagic.TryLocker
	certmagic.LockLeaseRenewer
} = (*Storage)(nil)

// Storage is a certmagic.Storage whose locks are a [locker.Locker]'s.
type Storage struct {
	certmagic.Storage // whose own locks are not used

	l      locker.Locker
	prefix string
	opts   []locker.LockOption
	mu     sync.Mutex
	held   map[string][]*locker.Lease // in the order in which they were granted
}

// Option configures a Storage.
type Option interface {
	apply(*Storage) error
}

type option func(*Storage) error

func (o option) apply(to *Storage) error { return o(to) }

// WithPrefix puts prefix before the names of locks, in place of "certmagic:".
func WithPrefix(prefix string) Option {
	return option(func(s *Storage) error {
		s.prefix = prefix
		return nil
	})
}

// WithLockOptions gives the lock options. WithWait counts for nothing: certmagic waits for as long as its context
// lasts.
func WithLockOptions(opts ...locker.LockOption) Option {
	return option(func(s *Storage) error {
		s.opts = append(s.opts, opts...)
		return nil
	})
}

// New gives a storage the locks of l. All instances have to use it: one that uses the storage itself does
// not see them. A wrong argument is an error that matches
// [locker.ErrInvalid].
func New(of certmagic.Storage, l locker.Locker, opts ...Option) (*Storage, error) {
	s := &Storage{Storage: of, l: l, prefix: "certmagic:", held: make(map[string][]*locker.Lease)}
	err := check.Options(opts, func(o Option) error { return o.apply(s) })
	if err == nil && of == nil {
		err = check.Invalid("the storage is nil")
	}
	if err == nil {
		err = locker.Validate(l, s.prefix+"x", s.opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("certmagiclocker: %w", err)
	}
	s.opts = append(s.opts, locker.WithUnboundedWait()) // whatever the Locker's default is
	return s, nil
}

// alone names a new owner, so that those whose contexts name the same one do not share their locks.
func alone(ctx context.Context) context.Context { return locker.ContextWithOwner(ctx, rand.Text()) }

// Lock implements [certmagic.Locker].
func (s *Storage) Lock(ctx context.Context, name string) error {
	lease, err := s.l.Lock(alone(ctx), s.prefix+name, s.opts...)
	if err != nil {
		return err
	}
	s.add(name, lease)
	return nil
}

// TryLock implements [certmagic.TryLocker]. A lock that is taken is no error.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	lease, err := s.l.TryLock(alone(ctx), s.prefix+name, s.opts...)
	switch {
	case err == nil:
		s.add(name, lease)
		return true, nil
	case errors.Is(err, locker.ErrNotAcquired) && ctx.Err() == nil:
		return false, nil
	}
	return false, err
}

// Unlock implements [certmagic.Locker]. It fails with [locker.ErrLost] if the lock was
// lost before.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	lease := s.take(name)
	if lease == nil {
		return fmt.Errorf("certmagiclocker: unlock %q: %w", name, locker.ErrNotHeld)
	}
	err := lease.Unlock(ctx)
	if errors.Is(err, locker.ErrNotHeld) { // RenewLockLease has found the loss
		return lease.Err()
	}
	return err
}

// RenewLockLease implements [certmagic.LockLeaseRenewer]. It makes sure that the lock is
// held, which renews itself after that: the duration counts for nothing. A lock that was
// lost is taken again if it is free, since certmagic would otherwise fail every
// further attempt of what it is doing; it fails with [locker.ErrNotAcquired] while another
// instance has it. That the store does not answer is no error as long as the lease lasts.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	var lease *locker.Lease
	if leases := s.held[name]; len(leases) > 0 {
		lease = leases[len(leases)-1]
	}
	s.mu.Unlock()
	if lease == nil {
		return fmt.Errorf("certmagiclocker: renew %q: %w", name, locker.ErrNotHeld)
	}
	err := lease.Renew(ctx)
	if !errors.Is(err, locker.ErrLost) {
		if lease.Err() == nil {
			return nil
		}
		return err
	}
	_ = lease.Unlock(ctx) // frees the key where a limit of the lock has ended the lease
	again, err := s.l.TryLock(alone(ctx), s.prefix+name, s.opts...)
	if err != nil {
		return err
	}
	return s.replace(ctx, name, lease, again)
}

func (s *Storage) add(name string, lease *locker.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], lease)
}

// take returns the lease to be unlocked. Where there are several all but the last
// are lost, while what ran under them has not ended: the first of them that unlocks
// takes a lost one, so that the lock is not given back before all have ended.
func (s *Storage) take(name string) *locker.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := s.held[name]
	if len(leases) == 0 {
		return nil
	}
	if s.held[name] = leases[1:]; len(leases) == 1 {
		delete(s.held, name)
	}
	return leases[0]
}

// replace puts lease in the place of one that is lost.
func (s *Storage) replace(ctx context.Context, name string, lost, lease *locker.Lease) error {
	s.mu.Lock()
	i := slices.Index(s.held[name], lost)
	if i >= 0 {
		s.held[name][i] = lease
	}
	s.mu.Unlock()
	if i < 0 { // unlocked meanwhile
		return errors.Join(fmt.Errorf("certmagiclocker: renew %q: %w", name, locker.ErrNotHeld), lease.Unlock(ctx))
	}
	return nil
}
