package gocronlocker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/distlock/locker"
	gocronlocker "github.com/distlock/locker/adapters/gocron"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/strategy/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLocker(t *testing.T, s *memory.Store) locker.Locker {
	t.Helper()
	l, err := s.New()
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func newJobs(t *testing.T, s *memory.Store, opts ...gocronlocker.Option) *gocronlocker.Locker {
	t.Helper()
	jobs, err := gocronlocker.New(newLocker(t, s), opts...)
	require.NoError(t, err)
	return jobs
}

// schedule starts a scheduler with one job, "report": every 10 s, from late after the next
// full 10 s on, as an instance has it whose clock is late.
func schedule(t *testing.T, late time.Duration, job any, opt gocron.SchedulerOption, opts ...gocron.JobOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(opt)
	require.NoError(t, err)
	first := time.Now().Truncate(10 * time.Second).Add(10*time.Second + late)
	opts = append(opts, gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(first)))
	_, err = s.NewJob(gocron.DurationJob(10*time.Second), gocron.NewTask(job), opts...)
	require.NoError(t, err)
	s.Start()
	return s
}

// runs counts the runs of a job for each full 10 s.
type runs struct {
	mu sync.Mutex
	at map[time.Time]int
}

func (r *runs) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = make(map[time.Time]int)
	}
	r.at[time.Now().Truncate(10*time.Second)]++
}

func (r *runs) requireEach(t *testing.T, times, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.at, n)
	for at, n := range r.at {
		require.Equal(t, times, n, at)
	}
}

// One of two schedulers whose clocks differ by 100 ms runs the job, unless its lock is
// free again by then.
func TestOneRunsIt(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []gocronlocker.Option
		times int
	}{
		"default":         {nil, 1},
		"no minimum hold": {[]gocronlocker.Option{gocronlocker.WithMinHold(0)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				var r runs
				var mu sync.Mutex
				var skipped []error
				listener := gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
					mu.Lock()
					defer mu.Unlock()
					skipped = append(skipped, err)
				}))
				a := schedule(t, 0, r.run, gocron.WithDistributedLocker(newJobs(t, store, c.opts...)), listener)
				b := schedule(t, 100*time.Millisecond, r.run, gocron.WithDistributedLocker(newJobs(t, store, c.opts...)), listener)
				time.Sleep(105 * time.Second) // ten runs, on the bubble's clock
				require.NoError(t, a.Shutdown())
				require.NoError(t, b.Shutdown())
				r.requireEach(t, c.times, 10)
				mu.Lock()
				defer mu.Unlock()
				require.Len(t, skipped, 20-10*c.times)
				for _, err := range skipped {
					require.ErrorIs(t, err, locker.ErrNotAcquired)
				}
				require.Empty(t, store.Keys())
			})
		})
	}
}

// Shutdown ends the context that gocron unlocks with. The lock is given back all
// the same, when the minimum hold is over. (Not in a bubble of synctest: gocron's Shutdown
// does not sleep while it waits.)
func TestShutdownInARun(t *testing.T) {
	store := memory.NewStore()
	start, began := time.Now(), make(chan struct{})
	jobs := newJobs(t, store, gocronlocker.WithMinHold(300*time.Millisecond), gocronlocker.WithPrefix("jobs/"))
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(jobs))
	require.NoError(t, err)
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func(ctx context.Context) {
		close(began)
		<-ctx.Done()
	}), gocron.WithName("report"))
	require.NoError(t, err)
	s.Start()
	<-began
	require.Equal(t, []string{"jobs/report"}, store.Keys())
	require.NoError(t, s.Shutdown())
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	require.Empty(t, store.Keys())
}

func TestLossIsKnownByTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		jobs := newJobs(t, store, gocronlocker.WithLockOptions(locker.WithTTL(3*time.Second)))
		require.Nil(t, jobs.Lease("report"))
		ended := make(chan error, 1)
		s := schedule(t, 0, func(ctx context.Context) {
			lease := jobs.Lease("report")
			ctx = lease.Context(ctx)
			if lease.Token() > 0 {
				store.Break("gocron:report")
			}
			<-ctx.Done()
			ended <- context.Cause(ctx)
		}, gocron.WithDistributedLocker(jobs))
		require.ErrorIs(t, <-ended, locker.ErrLost)
		time.Sleep(time.Second) // the minimum hold, which Shutdown would wait for without sleep
		require.NoError(t, s.Shutdown())
		require.Nil(t, jobs.Lease("report"))
	})
}

func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var r [2]runs
		var stop [2]context.CancelFunc
		var ended [2]chan error
		for i := range r {
			e, err := leader.New(newLocker(t, store), "scheduler")
			require.NoError(t, err)
			elector, err := gocronlocker.NewElector(e)
			require.NoError(t, err)
			require.ErrorIs(t, elector.IsLeader(t.Context()), locker.ErrNotAcquired)
			var ctx context.Context
			ctx, stop[i] = context.WithCancel(t.Context())
			ended[i] = make(chan error, 1)
			go func() {
				ended[i] <- e.Run(ctx, func(ctx context.Context, _ int64) error {
					<-ctx.Done()
					return nil
				})
			}()
			synctest.Wait()
			s := schedule(t, time.Duration(i)*100*time.Millisecond, r[i].run, gocron.WithDistributedElector(elector))
			defer s.Shutdown()
		}
		time.Sleep(55 * time.Second) // five runs, on the bubble's clock
		r[0].requireEach(t, 1, 5)
		r[1].requireEach(t, 1, 0)
		stop[0]()
		require.ErrorIs(t, <-ended[0], context.Canceled)
		time.Sleep(50 * time.Second) // five more
		r[0].requireEach(t, 1, 5)
		r[1].requireEach(t, 1, 5)
		stop[1]()
		require.ErrorIs(t, <-ended[1], context.Canceled)
	})
}

func TestMisuse(t *testing.T) {
	l := newLocker(t, memory.NewStore())
	_, err := gocronlocker.New(nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	for name, opt := range map[string]gocronlocker.Option{
		"nil": nil, "hold": gocronlocker.WithMinHold(-1), "prefix": gocronlocker.WithPrefix("\xff"),
		"TTL": gocronlocker.WithLockOptions(locker.WithTTL(0)),
	} {
		_, err := gocronlocker.New(l, opt)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err = gocronlocker.NewElector(nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	jobs, err := gocronlocker.New(l)
	require.NoError(t, err)
	_, err = jobs.Lock(t.Context(), "")
	require.ErrorIs(t, err, locker.ErrInvalid)
}
