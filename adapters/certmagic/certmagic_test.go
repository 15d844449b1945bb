package certmagiclocker_test

import (
	"context"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/distlock/locker"
	certmagiclocker "github.com/distlock/locker/adapters/certmagic"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/memory"
)

const name = "issue_cert_example.com"

func newLocker(t *testing.T, s *memory.Store, opts ...locker.Option) locker.Locker {
	t.Helper()
	l, err := s.New(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func newStorage(t *testing.T, files string, l locker.Locker, opts ...certmagiclocker.Option) *certmagiclocker.Storage {
	t.Helper()
	s, err := certmagiclocker.New(&certmagic.FileStorage{Path: files}, l, opts...)
	require.NoError(t, err)
	return s
}

func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, files := memory.NewStore(), t.TempDir()
		a := newStorage(t, files, newLocker(t, store))
		b := newStorage(t, files, newLocker(t, store, locker.WithWait(0))) // which counts for nothing
		require.NoError(t, a.Lock(t.Context(), name))
		require.Equal(t, []string{"certmagic:" + name}, store.Keys())
		require.False(t, a.Exists(t.Context(), "locks"), "the storage has a lock, too")

		ok, err := b.TryLock(t.Context(), name)
		require.NoError(t, err, "that the lock is taken is no error")
		require.False(t, ok)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = b.TryLock(over, name)
		require.ErrorIs(t, err, context.Canceled)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Lock(short, name), context.DeadlineExceeded)

		locked := make(chan error)
		go func() { locked <- b.Lock(t.Context(), name) }()
		time.Sleep(time.Hour) // longer than the TTL
		select {
		case <-locked: //nolint:errcheck // it is not to be sent
			t.Error("two hold the lock")
		default:
		}
		require.NoError(t, a.Unlock(t.Context(), name))
		require.NoError(t, <-locked)
		require.NoError(t, b.Unlock(t.Context(), name))
		require.ErrorIs(t, b.Unlock(t.Context(), name), locker.ErrNotHeld)
		ok, err = a.TryLock(t.Context(), name)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, a.Unlock(t.Context(), name))
		require.Empty(t, store.Keys())
	})
}

func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, files := memory.NewStore(), t.TempDir()
		a, b := newStorage(t, files, newLocker(t, store)), newStorage(t, files, newLocker(t, store))
		renew := func(s *certmagiclocker.Storage) error { return s.RenewLockLease(t.Context(), name, time.Minute) }
		require.ErrorIs(t, renew(a), locker.ErrNotHeld)
		require.NoError(t, a.Lock(t.Context(), name))
		require.NoError(t, renew(a))

		store.Flush()
		require.NoError(t, renew(a), "no other instance has the lock")
		require.NotEmpty(t, store.Keys())
		require.NoError(t, renew(a))

		store.Flush()
		require.NoError(t, b.Lock(t.Context(), name))
		require.ErrorIs(t, renew(a), locker.ErrNotAcquired)
		require.ErrorIs(t, renew(a), locker.ErrNotAcquired, "as often as it tries")
		require.NoError(t, renew(b))
		require.NoError(t, b.Unlock(t.Context(), name))
		require.NoError(t, renew(a), "the next attempt has the lock again")
		require.NoError(t, a.Unlock(t.Context(), name))
		require.Empty(t, store.Keys())

		require.NoError(t, a.Lock(t.Context(), name))
		store.Flush()
		require.NoError(t, b.Lock(t.Context(), name))
		require.ErrorIs(t, renew(a), locker.ErrNotAcquired)
		require.ErrorIs(t, a.Unlock(t.Context(), name), locker.ErrLost)
		require.NoError(t, b.Unlock(t.Context(), name))
	})
}

// Sections whose contexts name the same owner exclude each other, and a lost lock is taken again.
func TestNamedOwner(t *testing.T) {
	store := memory.NewStore()
	s := newStorage(t, t.TempDir(), newLocker(t, store))
	ctx := locker.ContextWithOwner(t.Context(), "web-7")
	require.NoError(t, s.Lock(ctx, name))
	ok, err := s.TryLock(ctx, name)
	require.NoError(t, err)
	require.False(t, ok)
	store.Flush()
	require.NoError(t, s.RenewLockLease(ctx, name, time.Minute))
	require.NoError(t, s.Unlock(ctx, name))
	require.Empty(t, store.Keys())
}

// A lock whose limit was reached is taken again at once, as nobody else has it.
func TestRenewAfterALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		s := newStorage(t, t.TempDir(), newLocker(t, store), certmagiclocker.WithLockOptions(locker.WithMaxHold(time.Second)))
		require.NoError(t, s.Lock(t.Context(), name))
		time.Sleep(2 * time.Second) // on the bubble's clock: longer than the limit, shorter than the TTL
		require.NoError(t, s.RenewLockLease(t.Context(), name, time.Minute))
		require.NoError(t, s.Unlock(t.Context(), name))
		require.Empty(t, store.Keys())
	})
}

// A section whose lock was lost does not give back the lock of the section after it in the
// same process.
func TestUnlockAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		s := newStorage(t, t.TempDir(), newLocker(t, store))
		require.NoError(t, s.Lock(t.Context(), name))
		store.Flush()
		time.Sleep(time.Minute) // the loss is known
		require.NoError(t, s.Lock(t.Context(), name))
		require.ErrorIs(t, s.Unlock(t.Context(), name), locker.ErrLost)
		require.NotEmpty(t, store.Keys())
		require.NoError(t, s.Unlock(t.Context(), name))
		require.Empty(t, store.Keys())
	})
}

// away is a driver of a store that does not answer while down is set.
type away struct {
	driver.Driver
	down atomic.Bool
}

func (d *away) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	if !d.down.Load() {
		d.Driver.Renew(ctx, claims, answer)
		return
	}
	for i := range claims {
		answer(i, errors.New("connection refused"))
	}
}

func TestRenewInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &away{Driver: memory.NewStore().Driver()}
		l, err := locker.New(d)
		require.NoError(t, err)
		defer l.Close()
		s := newStorage(t, t.TempDir(), l)
		require.NoError(t, s.Lock(t.Context(), name))
		d.down.Store(true)
		require.NoError(t, s.RenewLockLease(t.Context(), name, time.Minute), "the lease lasts")
		require.NoError(t, s.Unlock(t.Context(), name))
	})
}

// issuer tells when certmagic calls it, and fails as told.
type issuer struct {
	calls   atomic.Int32
	called  chan struct{}
	proceed chan struct{}
}

func (*issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(context.Context, *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	i.calls.Add(1)
	i.called <- struct{}{}
	<-i.proceed
	return nil, certmagic.ErrNoRetry{Err: errors.New("no certificate today")}
}

// certmagic itself: of two instances one asks for a certificate while the other waits.
func TestObtain(t *testing.T) {
	store, files := memory.NewStore(), t.TempDir()
	i := &issuer{called: make(chan struct{}), proceed: make(chan struct{})}
	ended := make(chan error, 2)
	waits := make(chan struct{}, 10)
	for range 2 {
		l := newLocker(t, store, locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				waits <- struct{}{}
			}
		})))
		cache := certmagic.NewCache(certmagic.CacheOptions{
			GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return nil, errors.New("unused") },
			Logger:           zap.NewNop(),
		})
		defer cache.Stop()
		cfg := certmagic.New(cache, certmagic.Config{
			Storage: newStorage(t, files, l), Issuers: []certmagic.Issuer{i}, Logger: zap.NewNop(),
		})
		go func() { ended <- cfg.ObtainCertAsync(t.Context(), "example.com") }()
	}
	<-i.called
	<-waits
	require.EqualValues(t, 1, i.calls.Load(), "both instances ask for a certificate")
	require.Equal(t, []string{"certmagic:issue_cert_example.com"}, store.Keys())
	i.proceed <- struct{}{}
	<-i.called
	i.proceed <- struct{}{}
	for range 2 {
		require.ErrorContains(t, <-ended, "no certificate today")
	}
	require.Empty(t, store.Keys())
}

func TestMisuse(t *testing.T) {
	l := newLocker(t, memory.NewStore())
	files := &certmagic.FileStorage{Path: t.TempDir()}
	_, err := certmagiclocker.New(nil, l)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = certmagiclocker.New(files, nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = certmagiclocker.New(files, l, certmagiclocker.WithLockOptions(locker.WithTTL(0)))
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = certmagiclocker.New(files, l, nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	s := newStorage(t, t.TempDir(), l)
	require.ErrorIs(t, s.Lock(t.Context(), "\xff"), locker.ErrInvalid)
}

func TestPrefix(t *testing.T) {
	store := memory.NewStore()
	s := newStorage(t, t.TempDir(), newLocker(t, store), certmagiclocker.WithPrefix("app:"))
	require.NoError(t, s.Lock(t.Context(), name))
	require.Equal(t, []string{"app:" + name}, store.Keys())
	require.NoError(t, s.RenewLockLease(t.Context(), name, time.Minute))
	require.NoError(t, s.Unlock(t.Context(), name))
	require.Empty(t, store.Keys())
}
