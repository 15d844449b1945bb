package singleflight_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/singleflight"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/redistest/leaktest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newGroup(t *testing.T, store *memory.Store, results singleflight.Store, opts ...singleflight.Option) *singleflight.Group {
	t.Helper()
	l, err := store.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	g, err := singleflight.New(l, results, opts...)
	require.NoError(t, err)
	return g
}

// One of 30 calls in three processes on Redis computes, and all get its value.
func TestOneComputes(t *testing.T) {
	server := redistest.Shared(t)
	var computed atomic.Int32
	var calls sync.WaitGroup
	for range 3 {
		rdb := server.Client(t)
		l, err := hashreentrant.New(rdb)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		g, err := singleflight.New(l, singleflight.NewRedis(rdb), singleflight.WithPrefix(t.Name()+":"))
		require.NoError(t, err)
		for range 10 {
			calls.Go(func() {
				value, err := g.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
					time.Sleep(50 * time.Millisecond) // the work, in which the others come
					return fmt.Append(nil, "value ", computed.Add(1)), nil
				})
				if err != nil || string(value) != "value 1" {
					t.Errorf("%q, %v", value, err)
				}
			})
		}
	}
	calls.Wait()
}

// A process that dies while it computes has the others wait for its TTL, and a late result of its is not stored.
func TestLateResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, results := memory.NewStore(), singleflight.NewMemory()
		late, next := newGroup(t, store, results), newGroup(t, store, results)
		asleep, ended := make(chan struct{}), make(chan error)
		go func() {
			value, err := late.Do(t.Context(), "k", func(ctx context.Context) ([]byte, error) {
				<-ctx.Done() // the lock is lost
				if !errors.Is(context.Cause(ctx), locker.ErrLost) {
					t.Errorf("the context ended by %v", context.Cause(ctx))
				}
				<-asleep
				return []byte("late"), nil
			})
			if string(value) != "late" {
				t.Errorf("the late call got %q", value)
			}
			ended <- err
		}()
		synctest.Wait()
		require.True(t, store.Break("singleflight:lock:k"))
		fresh := func(context.Context) ([]byte, error) { return []byte("fresh"), nil }
		value, err := next.Do(t.Context(), "k", fresh)
		require.NoError(t, err)
		require.Equal(t, "fresh", string(value))
		time.Sleep(20 * time.Second) // the loss is known
		close(asleep)
		require.NoError(t, <-ended)
		value, err = late.Do(t.Context(), "k", isThere)
		require.NoError(t, err)
		require.Equal(t, "fresh", string(value))
	})
}

// Nor is it if the result of the computation after it has run out meanwhile.
func TestLaterResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, results := memory.NewStore(), singleflight.NewMemory()
		opts := []singleflight.Option{singleflight.WithTTL(time.Second), singleflight.WithEarly(0)}
		late, next := newGroup(t, store, results, opts...), newGroup(t, store, results, opts...)
		ended := make(chan error)
		go func() {
			_, err := late.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
				time.Sleep(time.Minute) // on the bubble's clock: past the loss, and the end of the next result
				return []byte("late"), nil
			})
			ended <- err
		}()
		synctest.Wait()
		require.True(t, store.Break("singleflight:lock:k"))
		fresh := func(context.Context) ([]byte, error) { return []byte("fresh"), nil }
		_, err := next.Do(t.Context(), "k", fresh)
		require.NoError(t, err)
		require.NoError(t, <-ended)
		value, err := next.Do(t.Context(), "k", fresh)
		require.NoError(t, err)
		require.Equal(t, "fresh", string(value))
	})
}

func isThere(context.Context) ([]byte, error) { return nil, errors.New("it is there") }

// The calls of a process share an error, and a call that leaves does not take the others along.
func TestCallsOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		g := newGroup(t, store, singleflight.NewMemory())
		broken := errors.New("broken")
		runs := 0
		fn := func(ctx context.Context) ([]byte, error) {
			runs++
			select {
			case <-time.After(time.Second):
				return nil, broken
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		first, leave := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		for _, ctx := range []context.Context{first, t.Context(), t.Context()} {
			go func() {
				_, err := g.Do(ctx, "k", fn)
				ended <- err
			}()
			synctest.Wait()
		}
		leave()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.ErrorIs(t, <-ended, broken)
		require.ErrorIs(t, <-ended, broken)
		require.Equal(t, 1, runs)

		// When all have left, the function is stopped, and the lock is free.
		all, leave := context.WithCancel(t.Context())
		go func() {
			_, err := g.Do(all, "k", fn)
			ended <- err
		}()
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-ended, context.Canceled)
		synctest.Wait()
		require.Empty(t, store.Keys())

		_, err := g.Do(t.Context(), "k", func(context.Context) ([]byte, error) { panic("oh") })
		require.ErrorIs(t, err, singleflight.ErrPanicked)
		require.ErrorContains(t, err, "oh")

		value, err := g.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
			runtime.Goexit() // as a test's FailNow does
			return nil, nil
		})
		require.ErrorIs(t, err, singleflight.ErrPanicked, "the value %q", value)
		require.Empty(t, store.Keys())
	})
}

// The goroutines of a function exclude each other by the locks that they take, as under any lease.
func TestLocksOfAFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l, err := store.New()
		require.NoError(t, err)
		defer l.Close()
		_, err = newGroup(t, store, singleflight.NewMemory()).Do(t.Context(), "k", func(ctx context.Context) ([]byte, error) {
			var inside atomic.Int32
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					err := locker.Do(ctx, l, "another", func(context.Context) error {
						if inside.Add(1) > 1 {
							t.Error("two are inside")
						}
						time.Sleep(time.Second) // on the bubble's clock: the other one comes meanwhile
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			return nil, nil
		})
		require.NoError(t, err)
	})
}

// The error is that of the context, and its cause.
func TestEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := errors.New("slow")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, slow)
		defer cancel()
		_, err := newGroup(t, memory.NewStore(), singleflight.NewMemory()).Do(ctx, "k", func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return nil, nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, slow)
	})
}

// inOutage returns a Locker whose store refuses everything until the faults are healed.
func inOutage(t *testing.T, begin func(*conformance.Injector) error) (*locker.Client, *conformance.Injector) {
	t.Helper()
	var faults conformance.Injector
	require.NoError(t, begin(&faults))
	l, err := locker.New(faults.Wrap(memory.NewStore().Driver()))
	require.NoError(t, err)
	return l, &faults
}

// In an outage that all callers do not wait out, there is nobody to compute for.
func TestAllLeaveBeforeTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, faults := inOutage(t, (*conformance.Injector).BlackHole)
		defer l.Close()
		g, err := singleflight.New(l, singleflight.NewMemory(), singleflight.ComputeWhenUnavailable())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = g.Do(ctx, "k", func(context.Context) ([]byte, error) {
			t.Error("it computes")
			return nil, nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute) // on the bubble's clock: longer than Lock tries
		require.NoError(t, faults.Heal())
	})
}

func TestUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, faults := inOutage(t, (*conformance.Injector).Refuse)
		defer l.Close()
		for _, opts := range [][]singleflight.Option{nil, {singleflight.ComputeWhenUnavailable()}} {
			g, err := singleflight.New(l, singleflight.NewMemory(), opts...)
			require.NoError(t, err)
			began := time.Now()
			value, err := g.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return []byte("v"), nil })
			if opts == nil {
				require.ErrorIs(t, err, locker.ErrUnavailable)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, "v", string(value))
			require.Less(t, time.Since(began), time.Second, "it waits for the store")
		}
		require.NoError(t, faults.Heal())
	})
}

// TestStores checks the contract of a Store on each of them.
func TestStores(t *testing.T) {
	server := redistest.Shared(t)
	for name, s := range map[string]singleflight.Store{
		"memory": singleflight.NewMemory(), "redis": singleflight.NewRedis(server.Client(t)),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, key := t.Context(), t.Name()
			_, ok, err := s.Get(ctx, key)
			require.NoError(t, err)
			require.False(t, ok)
			const token = 1<<53 - 2
			for _, r := range []singleflight.Result{
				{Value: []byte("first\x00"), Token: token, Took: 3 * time.Second},
				{Value: []byte("late"), Token: token - 1},
				{Value: []byte{}, Token: token + 1},
			} {
				require.NoError(t, s.Put(ctx, key, r, time.Minute))
				got, ok, err := s.Get(ctx, key)
				require.NoError(t, err)
				require.True(t, ok)
				require.LessOrEqual(t, got.Remaining, time.Minute)
				require.Greater(t, got.Remaining, 30*time.Second)
				if got.Remaining = 0; string(r.Value) == "late" {
					require.Equal(t, "first\x00", string(got.Value))
					continue
				}
				require.Equal(t, r, got)
			}
			require.NoError(t, s.Put(ctx, key, singleflight.Result{Token: token + 1}, time.Millisecond))
			require.Eventually(t, func() bool {
				_, ok, err := s.Get(ctx, key)
				return err == nil && !ok
			}, 30*time.Second, time.Millisecond)
		})
	}
}

// The program of README.md.
func TestReadme(t *testing.T) {
	docblocks.InFile(t, "README.md", "example_test.go")
	require.NoError(t, serve(t.Context(), redistest.Shared(t).Client(t)))
}

func TestMisuse(t *testing.T) {
	l, err := memory.New()
	require.NoError(t, err)
	defer l.Close()
	s := singleflight.NewMemory()
	for name, opt := range map[string]singleflight.Option{
		"nil": nil, "TTL": singleflight.WithTTL(0), "early": singleflight.WithEarly(-1), "prefix": singleflight.WithPrefix("\xff"),
		"lock": singleflight.WithLockOptions(locker.WithTTL(0)),
	} {
		_, err := singleflight.New(l, s, opt)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err = singleflight.New(nil, s)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = singleflight.New(l, nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	g, err := singleflight.New(l, s)
	require.NoError(t, err)
	_, err = g.Do(t.Context(), "k", nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = g.Do(t.Context(), "\xff", func(context.Context) ([]byte, error) { return nil, nil })
	require.ErrorIs(t, err, locker.ErrInvalid)
}
