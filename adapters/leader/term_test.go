package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/memory"
)

func look(t *testing.T, l locker.Locker, opts ...leader.Option) *leader.Elector {
	t.Helper()
	e, err := leader.New(l, key, opts...)
	require.NoError(t, err)
	return e
}

func TestLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		observer := look(t, newLocker(t, store))
		_, err := observer.Leader(t.Context())
		require.ErrorIs(t, err, locker.ErrNotHeld)

		ctx, stop := context.WithCancel(t.Context())
		const name, payload = "web-7 & co", "http://10.0.0.7:8080/?a=b#ü"
		c := stand(t, ctx, newLocker(t, store), untilEnd, leader.WithIdentity(name, payload))
		synctest.Wait()
		term, err := observer.Leader(t.Context())
		require.NoError(t, err)
		require.False(t, term.Vacant())
		require.Equal(t, []any{name, payload, c.Token()}, []any{term.Identity, term.Payload, term.Token})
		require.WithinDuration(t, time.Now(), term.Since, 0)
		stop()
		require.ErrorIs(t, <-c.ended, context.Canceled)

		// Another program's lock, and a candidate without a name.
		lease, err := newLocker(t, store).Lock(locker.ContextWithOwner(t.Context(), "an operator"), key)
		require.NoError(t, err)
		term, err = observer.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "an operator", term.Identity)
		require.NoError(t, lease.Unlock(t.Context()))
		c = stand(t, t.Context(), newLocker(t, store), untilEnd)
		synctest.Wait()
		term, err = observer.Leader(t.Context())
		require.NoError(t, err)
		require.Regexp(t, `^.+/\d+$`, term.Identity)
	})
}

// wrapped hides its Client.
type wrapped struct{ locker.Locker }

func TestLeaderOfNoClient(t *testing.T) {
	e := look(t, wrapped{newLocker(t, memory.NewStore())})
	_, err := e.Leader(t.Context())
	require.ErrorIs(t, err, locker.ErrInvalid)
	for _, err = range e.Observe(t.Context()) {
		require.ErrorIs(t, err, locker.ErrInvalid)
	}
	require.Error(t, err)
}

// The term is in the context, under another lock, too.
func TestTermFromContext(t *testing.T) {
	_, ok := leader.TermFromContext(t.Context())
	require.False(t, ok)
	l := newLocker(t, memory.NewStore())
	require.NoError(t, leader.Run(t.Context(), l, key, func(ctx context.Context, token int64) error {
		return locker.Do(ctx, l, "another", func(ctx context.Context) error {
			term, ok := leader.TermFromContext(ctx)
			require.True(t, ok)
			require.Equal(t, []any{"ann", "a:1", token}, []any{term.Identity, term.Payload, term.Token})
			asked := leader.StepDownRequested(ctx)
			require.NoError(t, l.(*locker.Client).RequestRelease(ctx, key))
			<-asked
			return nil
		})
	}, leader.WithIdentity("ann", "a:1")))
}

// story is what candidates did.
type story struct {
	mu    sync.Mutex
	terms []string
}

// reign stands until the story has n terms, each over when the function has returned.
func (s *story) reign(ctx context.Context, t *testing.T, l locker.Locker, name string, n int, serve func(context.Context, int64), opts ...leader.Option) {
	t.Helper()
	opts = append(opts, leader.WithIdentity(name, "of "+name), leader.WithBackoff(time.Millisecond, 2*time.Millisecond))
	err := leader.Run(ctx, l, key, func(ctx context.Context, token int64) error {
		s.mu.Lock()
		over := len(s.terms) == n
		if !over {
			s.terms = append(s.terms, fmt.Sprint(name, " of ", name, " ", token))
		}
		s.mu.Unlock()
		if over {
			return nil // no candidate stands again; this term is none of the story
		}
		serve(ctx, token)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.terms) == n {
			return nil
		}
		return leader.ErrSteppedDown
	}, opts...)
	if err != nil {
		t.Error(err)
	}
}

// follow collects n terms; each calls f. A look that is late on a busy machine is no failure: what it misses is.
func follow(ctx context.Context, t *testing.T, e *leader.Elector, n int, f func(leader.Term)) (seen []string) {
	t.Helper()
	late := false
	for term, err := range e.Observe(ctx) {
		again := late // the present term comes, whether or not it has changed
		late = errors.Is(err, locker.ErrUnavailable)
		if err != nil && !late {
			t.Error(err)
			return seen
		}
		text := fmt.Sprint(term.Identity, " ", term.Payload, " ", term.Token)
		if term.Vacant() || again && slices.Contains(seen, text) {
			continue
		}
		seen = append(seen, text)
		if f(term); len(seen) == n {
			return seen
		}
	}
	return seen
}

// Three candidates lead in turn, a thousand times, each as shortly as can be. Observers miss no term, in
// whatever phase they look, also if they are slow.
func TestObserveMissesNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const terms = 1000
		store, s := memory.NewStore(), story{}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour) // on the bubble's clock: longer than all terms
		defer stop()
		var observers, candidates sync.WaitGroup
		seen := make([][]string, 4)
		for i := range seen {
			observers.Go(func() {
				time.Sleep(time.Duration(i) * 40 * time.Millisecond) // on the bubble's clock: each looks in another phase
				seen[i] = follow(ctx, t, look(t, newLocker(t, store)), terms, func(leader.Term) {
					if i == 3 {
						time.Sleep(700 * time.Millisecond) // on the bubble's clock: longer than most terms
					}
				})
			})
		}
		time.Sleep(200 * time.Millisecond) // all look
		for _, name := range []string{"ann", "bob", "cat"} {
			candidates.Go(func() {
				s.reign(t.Context(), t, newLocker(t, store), name, terms, func(context.Context, int64) {})
			})
		}
		candidates.Wait()
		observers.Wait()
		for _, one := range seen {
			require.Equal(t, s.terms, one)
		}
	})
}

// A limit of the lock ends a term for its leader earlier than the shortest term; in the store it lasts, so that observers
// see it.
func TestObserveTermsWithALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const terms = 50
		store, s := memory.NewStore(), story{}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour) // on the bubble's clock: longer than all terms
		defer stop()
		var all sync.WaitGroup
		var seen []string
		all.Go(func() { seen = follow(ctx, t, look(t, newLocker(t, store)), terms, func(leader.Term) {}) })
		time.Sleep(200 * time.Millisecond) // it looks in a phase of its own
		for _, name := range []string{"ann", "bob"} {
			all.Go(func() {
				s.reign(ctx, t, newLocker(t, store), name, terms, func(ctx context.Context, _ int64) { <-ctx.Done() },
					leader.WithLockOptions(locker.WithMaxHold(100*time.Millisecond)))
			})
		}
		all.Wait()
		require.Equal(t, s.terms, seen)
	})
}

// On Redis a leader steps down when observers of two processes have seen it: the terms are the
// leaders' own, in their order, with their tokens.
func TestObserveOnRedis(t *testing.T) {
	const terms = 60
	server := redistest.Shared(t)
	for name, newLocker := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := func() locker.Locker {
				l, err := newLocker(server.Client(t), locker.WithPrefix(name+":"))
				require.NoError(t, err)
				t.Cleanup(func() { _ = l.Close() })
				return l
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			var s story
			seen, soon := make(chan int64, 2*terms), leader.WithMinTerm(10*time.Millisecond)
			var observers, candidates sync.WaitGroup
			all := make([][]string, 2)
			for i := range all {
				e := look(t, open(), soon)
				observers.Go(func() { all[i] = follow(ctx, t, e, terms, func(term leader.Term) { seen <- term.Token }) })
			}
			both := open() // two of the candidates are of one process
			for name, l := range map[string]locker.Locker{"ann": both, "bob": both, "cat": open()} {
				candidates.Go(func() {
					s.reign(t.Context(), t, l, name, terms, func(_ context.Context, token int64) {
						for range all {
							select {
							case got := <-seen:
								if got != token {
									t.Errorf("an observer has seen token %d in the term of token %d", got, token)
								}
							case <-ctx.Done():
								t.Errorf("an observer has not seen token %d", token)
							}
						}
					}, soon)
				})
			}
			candidates.Wait()
			observers.Wait()
			for _, one := range all {
				require.Equal(t, s.terms, one)
			}
		})
	}
}

// While the store cannot be asked there is one error, and then the present leader.
func TestObserveInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults conformance.Injector
		store := memory.NewStore()
		l, err := locker.New(faults.Wrap(store.Driver()))
		require.NoError(t, err)
		defer l.Close()
		stand(t, t.Context(), newLocker(t, store), untilEnd, leader.WithIdentity("ann", ""))
		synctest.Wait()
		var seen []string
		for term, err := range look(t, l).Observe(t.Context()) {
			switch {
			case err != nil:
				require.ErrorIs(t, err, locker.ErrUnavailable)
				require.True(t, term.Vacant())
				seen = append(seen, "error")
			case term.Vacant():
				seen = append(seen, "vacant")
			default:
				seen = append(seen, term.Identity)
			}
			switch len(seen) {
			case 1:
				require.NoError(t, faults.Refuse())
			case 2:
				time.Sleep(time.Minute) // many looks
				require.NoError(t, faults.Heal())
			case 3:
				require.True(t, store.Break(key))
			}
			if len(seen) == 4 {
				break
			}
		}
		require.Equal(t, []string{"ann", "error", "ann", "vacant"}, seen)
	})
}

func TestObserveEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		n := 0
		for term, err := range look(t, newLocker(t, memory.NewStore())).Observe(ctx) {
			require.NoError(t, err)
			require.True(t, term.Vacant())
			n++
		}
		require.Equal(t, 1, n)
		l := newLocker(t, memory.NewStore())
		var last error
		for _, err := range look(t, l).Observe(t.Context()) {
			last = err
			require.NoError(t, l.Close())
		}
		require.ErrorIs(t, last, locker.ErrClosed)
	})
}
