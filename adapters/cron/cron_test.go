package cronlocker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/distlock/locker"
	cronlocker "github.com/distlock/locker/adapters/cron"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "reports/nightly"

func newLocker(t *testing.T, s *memory.Store) locker.Locker {
	t.Helper()
	l, err := s.New()
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func onlyOne(t *testing.T, l locker.Locker, opts ...cronlocker.Option) cron.JobWrapper {
	t.Helper()
	w, err := cronlocker.OnlyOne(l, key, opts...)
	require.NoError(t, err)
	return w
}

// logged is a cron.Logger.
type logged struct {
	mu          sync.Mutex
	infos, errs []string
}

func (o *logged) Info(msg string, keysAndValues ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.infos = append(o.infos, fmt.Sprint(append([]any{msg}, keysAndValues...)...))
}

func (o *logged) Error(err error, msg string, keysAndValues ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, fmt.Sprint(append([]any{err, msg}, keysAndValues...)...))
}

// late is a schedule on a clock that is late.
type late struct {
	cron.Schedule
	by time.Duration
}

func (s late) Next(t time.Time) time.Time { return s.Schedule.Next(t.Add(-s.by)).Add(s.by) }

// One of two instances whose clocks differ by 100 ms runs the job, unless its lock is
// free again by then.
func TestOneRunsIt(t *testing.T) {
	for name, c := range map[string]struct {
		hold  time.Duration
		times int
	}{
		"default":         {500 * time.Millisecond, 1},
		"no minimum hold": {0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(30 * time.Second) // a bubble begins at the full minute
				store := memory.NewStore()
				ticks, err := cron.ParseStandard("* * * * *")
				require.NoError(t, err)
				var mu sync.Mutex
				at := make(map[time.Time]int)
				job := cron.FuncJob(func() {
					mu.Lock()
					defer mu.Unlock()
					at[time.Now().Truncate(time.Minute)]++
				})
				var log logged
				var instances []*cron.Cron
				for _, by := range []time.Duration{0, 100 * time.Millisecond} {
					opts := []cronlocker.Option{cronlocker.WithLogger(&log)}
					if c.hold == 0 {
						opts = append(opts, cronlocker.WithMinHold(0))
					}
					i := cron.New()
					i.Schedule(late{ticks, by}, cron.NewChain(onlyOne(t, newLocker(t, store), opts...)).Then(job))
					i.Start()
					instances = append(instances, i)
				}
				time.Sleep(10 * time.Minute) // ten runs, on the bubble's clock
				for _, i := range instances {
					<-i.Stop().Done()
				}
				require.Len(t, at, 10)
				for minute, n := range at {
					require.Equal(t, c.times, n, minute)
				}
				require.Len(t, log.infos, 20-10*c.times)
				require.Empty(t, log.errs)
				require.Empty(t, store.Keys())
			})
		})
	}
}

// A run that is not over when the next one is due makes that one be skipped.
func TestStillRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var log logged
		end, runs := make(chan struct{}), 0
		job := onlyOne(t, newLocker(t, store), cronlocker.WithLogger(&log))(cron.FuncJob(func() { runs++; <-end }))
		done := make(chan struct{})
		go func() { job.Run(); close(done) }()
		time.Sleep(time.Hour) // on the bubble's clock: the next run is due
		job.Run()
		require.Len(t, log.infos, 1)
		close(end)
		<-done
		require.Equal(t, 1, runs)
	})
}

// It is skipped, too, if the context of the runs names an owner, as that of a whole program may.
func TestStillRunningUnderANamedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, runs := make(chan struct{}), 0
		job := onlyOne(t, newLocker(t, memory.NewStore()), cronlocker.WithLogger(cron.DiscardLogger),
			cronlocker.WithContext(locker.ContextWithOwner(t.Context(), "web-7")))(cron.FuncJob(func() {
			if runs++; runs == 1 {
				<-end
			}
		}))
		done := make(chan struct{})
		go func() { job.Run(); close(done) }()
		synctest.Wait()
		job.Run()
		close(end)
		<-done
		require.Equal(t, 1, runs)
	})
}

func TestContextEndsWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var log logged
		job := onlyOne(t, newLocker(t, store), cronlocker.WithLogger(&log))(cronlocker.Func(func(ctx context.Context) {
			lease, ok := locker.LeaseFromContext(ctx)
			require.True(t, ok)
			require.Positive(t, lease.Token())
			store.Break(key)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		}))
		job.Run()
		require.Len(t, log.errs, 1, "Unlock tells of the loss")
	})
}

func TestContext(t *testing.T) {
	store := memory.NewStore()
	var log logged
	ctx, stop := context.WithCancel(t.Context())
	runs := 0
	job := onlyOne(t, newLocker(t, store), cronlocker.WithContext(ctx), cronlocker.WithMinHold(0), cronlocker.WithLogger(&log))(
		cronlocker.Func(func(ctx context.Context) {
			runs++
			stop()
			<-ctx.Done()
		}))
	job.Run()
	require.Empty(t, store.Keys())
	require.Empty(t, log.errs)
	job.Run()
	require.Equal(t, 1, runs, "it ran after the end of its context")
}

func TestPanic(t *testing.T) {
	store := memory.NewStore()
	w := onlyOne(t, newLocker(t, store), cronlocker.WithMinHold(0))
	job := cron.NewChain(cron.Recover(cron.DiscardLogger), w).Then(cron.FuncJob(func() { panic("oh") }))
	job.Run()
	require.Empty(t, store.Keys())
}

type away struct{ driver.Driver }

func (away) Acquire(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, errors.New("connection refused")
}

func TestStoreUnavailable(t *testing.T) {
	l, err := locker.New(away{memory.NewStore().Driver()})
	require.NoError(t, err)
	defer l.Close()
	var log logged
	onlyOne(t, l, cronlocker.WithLogger(&log))(cron.FuncJob(func() { t.Error("it ran without the lock") })).Run()
	require.Len(t, log.errs, 1)
	require.Contains(t, log.errs[0], "connection refused")
}

func TestMisuse(t *testing.T) {
	var none context.Context
	l := newLocker(t, memory.NewStore())
	for name, opt := range map[string]cronlocker.Option{
		"nil": nil, "hold": cronlocker.WithMinHold(-1), "log": cronlocker.WithLogger(nil),
		"context": cronlocker.WithContext(none),
		"TTL":     cronlocker.WithLockOptions(locker.WithTTL(0)),
	} {
		_, err := cronlocker.OnlyOne(l, key, opt)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err := cronlocker.OnlyOne(nil, key)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = cronlocker.OnlyOne(l, "")
	require.ErrorIs(t, err, locker.ErrInvalid)
}
