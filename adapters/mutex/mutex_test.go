package mutex_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/mutex"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/strategy/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "k"

func newLocker(t *testing.T, s *memory.Store, opts ...locker.Option) locker.Locker {
	t.Helper()
	l, err := s.New(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// told are the errors that a Mutex told.
type told struct {
	mu   sync.Mutex
	errs []error
}

func (o *told) tell(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}

func (o *told) take() []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	errs := o.errs
	o.errs = nil
	return errs
}

func newMutex(t *testing.T, l locker.Locker, opts ...mutex.Option) (*mutex.Mutex, *told) {
	t.Helper()
	o := new(told)
	m, err := mutex.New(l, key, o.tell, opts...)
	require.NoError(t, err)
	return m, o
}

// Goroutines of one Mutex and of others exclude each other, on one Locker and on several.
func TestExcludes(t *testing.T) {
	store := memory.NewStore()
	l := newLocker(t, store)
	a, toldA := newMutex(t, l)
	b, toldB := newMutex(t, l)
	c, toldC := newMutex(t, newLocker(t, store))
	var wg sync.WaitGroup
	inside, n := atomic.Int32{}, 0
	for _, m := range []sync.Locker{a, b, c} {
		for range 4 {
			wg.Go(func() {
				for range 50 {
					m.Lock()
					if inside.Add(1) != 1 {
						t.Error("two are inside")
					}
					n++
					inside.Add(-1)
					m.Unlock()
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, 600, n)
	require.Empty(t, store.Keys())
	require.Empty(t, append(append(toldA.take(), toldB.take()...), toldC.take()...))
}

func TestTryLock(t *testing.T) {
	store := memory.NewStore()
	m, o := newMutex(t, newLocker(t, store))
	other, toldOther := newMutex(t, newLocker(t, store))
	require.True(t, m.TryLock())
	require.False(t, m.TryLock())
	require.False(t, other.TryLock())
	require.Positive(t, m.Lease().Token())
	require.NoError(t, m.Lease().Err())
	m.Unlock()
	require.Nil(t, m.Lease())
	require.True(t, other.TryLock())
	other.Unlock()
	require.Empty(t, append(o.take(), toldOther.take()...), "that another holder has the lock is no failure")
}

// That a lock is held for long is no failure, whatever the Locker's default is.
func TestLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, _ := newMutex(t, newLocker(t, store))
		second, o := newMutex(t, newLocker(t, store, locker.WithWait(time.Second)))
		first.Lock()
		go func() {
			time.Sleep(time.Hour) // on the bubble's clock: longer than the TTL
			first.Unlock()
		}()
		second.Lock()
		require.NoError(t, second.Lease().Err())
		second.Unlock()
		require.Empty(t, o.take())
	})
}

// A loss is reported once, at the moment of the loss; the goroutines of the Mutex go on
// excluding each other.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		m, o := newMutex(t, newLocker(t, store), mutex.WithLockOptions(locker.WithTTL(3*time.Second)))
		m.Lock()
		store.Break(key)
		time.Sleep(2 * time.Second) // there is a renewal each second
		errs := o.take()
		require.Len(t, errs, 1)
		require.ErrorIs(t, errs[0], locker.ErrLost)
		require.ErrorIs(t, m.Lease().Err(), locker.ErrLost)

		var entered atomic.Bool
		go func() { m.Lock(); entered.Store(true) }()
		time.Sleep(time.Minute) // on the bubble's clock: it would have entered by now
		require.False(t, entered.Load(), "two goroutines are inside")
		m.Unlock()
		synctest.Wait()
		require.True(t, entered.Load())
		require.Empty(t, o.take(), "the loss was told before")
		require.NoError(t, m.Lease().Err())
		m.Unlock()
		require.Empty(t, store.Keys())
	})
}

func TestLossFoundByUnlock(t *testing.T) {
	store := memory.NewStore()
	m, o := newMutex(t, newLocker(t, store))
	m.Lock()
	store.Break(key)
	m.Unlock()
	errs := o.take()
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], locker.ErrLost)
}

func TestLockGoesOnTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults conformance.Injector
		require.NoError(t, faults.Refuse())
		l, err := locker.New(faults.Wrap(memory.NewStore().Driver()))
		require.NoError(t, err)
		defer l.Close()
		m, o := newMutex(t, l)
		require.False(t, m.TryLock())
		errs := o.take()
		require.Len(t, errs, 1)
		require.ErrorIs(t, errs[0], locker.ErrUnavailable)

		locked := make(chan struct{})
		go func() { m.Lock(); close(locked) }()
		time.Sleep(5 * time.Minute) // on the bubble's clock: many attempts
		errs = o.take()
		require.Greater(t, len(errs), 3)
		for _, err := range errs {
			require.ErrorIs(t, err, locker.ErrUnavailable)
		}
		require.NoError(t, faults.Heal())
		<-locked
		m.Unlock()
		require.Empty(t, o.take())
	})
}

func TestUnlockOfAnUnlocked(t *testing.T) {
	m, o := newMutex(t, newLocker(t, memory.NewStore()))
	m.Unlock()
	errs := o.take()
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], locker.ErrNotHeld)
	m.Lock()
	require.NoError(t, m.Lease().Err())
	m.Unlock()
	require.Empty(t, o.take())
}

func TestClosedLocker(t *testing.T) {
	l := newLocker(t, memory.NewStore())
	m, o := newMutex(t, l)
	require.NoError(t, l.Close())
	for range 2 { // the second does not wait for the first
		func() {
			defer func() {
				err, _ := recover().(error)
				require.ErrorIs(t, err, locker.ErrClosed)
			}()
			m.Lock()
		}()
		require.Len(t, o.take(), 1)
	}
}

func TestMisuse(t *testing.T) {
	l := newLocker(t, memory.NewStore())
	ignore := func(error) {}
	for name, f := range map[string]func() (*mutex.Mutex, error){
		"no Locker":  func() (*mutex.Mutex, error) { return mutex.New(nil, key, ignore) },
		"no key":     func() (*mutex.Mutex, error) { return mutex.New(l, "", ignore) },
		"no onError": func() (*mutex.Mutex, error) { return mutex.New(l, key, nil) },
		"TTL": func() (*mutex.Mutex, error) {
			return mutex.New(l, key, ignore, mutex.WithLockOptions(locker.WithTTL(0)))
		},
		"no option": func() (*mutex.Mutex, error) { return mutex.New(l, key, ignore, nil) },
	} {
		_, err := f()
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
}

// panicking is a Locker whose next TryLock panics.
type panicking struct {
	locker.Locker
	armed bool
}

func (p *panicking) TryLock(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
	if p.armed {
		p.armed = false
		panic("a bug of the Locker's")
	}
	return p.Locker.TryLock(ctx, key, opts...)
}

// A panic under TryLock leaves the Mutex unlocked.
func TestPanicInTryLock(t *testing.T) {
	l := &panicking{Locker: newLocker(t, memory.NewStore())}
	m, told := newMutex(t, l)
	l.armed = true
	require.Panics(t, func() { m.TryLock() })
	require.True(t, m.TryLock())
	m.Unlock()
	require.Empty(t, told.take())
}

// A Mutex that nobody made has no key and no Locker: it does not wait for ever, as a nil channel would.
func TestZero(t *testing.T) {
	for name, method := range map[string]func(*mutex.Mutex){
		"Lock": (*mutex.Mutex).Lock, "TryLock": func(m *mutex.Mutex) { m.TryLock() }, "Unlock": (*mutex.Mutex).Unlock,
	} {
		for _, m := range []*mutex.Mutex{new(mutex.Mutex), nil} {
			failed := make(chan any, 1)
			go func() {
				defer func() { failed <- recover() }()
				method(m)
			}()
			select {
			case v := <-failed:
				err, _ := v.(error)
				require.ErrorIs(t, err, locker.ErrInvalid, name)
			case <-time.After(10 * time.Second):
				require.Fail(t, "it waits for ever", name)
			}
		}
	}
}
