package asynqlocker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	asynqlocker "github.com/distlock/locker/adapters/asynq"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/redistest/leaktest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/redlock"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// quiet is a logger that writes nothing.
type quiet struct{}

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}

func onRedis(t *testing.T, rdb *redis.Client) locker.Locker {
	t.Helper()
	l, err := hashreentrant.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// One of three instances enqueues; when it stops, another one does.
func TestSchedulerEnqueuesOnce(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	var enqueued [3]atomic.Int32
	var stop [3]context.CancelFunc
	ended := make(chan error, 3)
	for i := range enqueued {
		var ctx context.Context
		ctx, stop[i] = context.WithCancel(t.Context())
		defer stop[i]()
		l := onRedis(t, rdb)
		go func() {
			ended <- asynqlocker.RunScheduler(ctx, l, "scheduler", func() (asynqlocker.Scheduler, error) {
				s := asynq.NewSchedulerFromRedisClient(rdb, &asynq.SchedulerOpts{Logger: quiet{}, PostEnqueueFunc: func(*asynq.TaskInfo, error) {
					enqueued[i].Add(1)
				}})
				_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
				return s, err
			}, leader.WithLockOptions(locker.WithTTL(10*time.Second)))
		}()
	}
	scheduling := func(but int) (who int) {
		who = -1
		require.Eventually(t, func() bool {
			for i := range enqueued {
				if i != but && enqueued[i].Load() > 1 {
					who = i
				}
			}
			return who >= 0
		}, 30*time.Second, 10*time.Millisecond)
		return who
	}
	first := scheduling(-1)
	stop[first]()
	require.ErrorIs(t, <-ended, context.Canceled)
	before := enqueued[first].Load()
	second := scheduling(first)
	require.Equal(t, before, enqueued[first].Load(), "it goes on after its term")
	stop[second]()
	stop[3-first-second]()
	for range 2 {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	pending, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default")
	require.NoError(t, err)
	sum := enqueued[0].Load() + enqueued[1].Load() + enqueued[2].Load()
	require.EqualValues(t, sum, pending.Pending)
	if third := enqueued[3-first-second].Load(); third > 1 {
		t.Errorf("the third instance has enqueued %d tasks, and has not led", third)
	}
}

func TestSchedulerFails(t *testing.T) {
	l := onRedis(t, redistest.Shared(t).Client(t))
	broken := errors.New("broken")
	require.ErrorIs(t, asynqlocker.RunScheduler(t.Context(), l, t.Name(), func() (asynqlocker.Scheduler, error) { return nil, broken }), broken)
	require.ErrorIs(t, asynqlocker.RunScheduler(t.Context(), l, t.Name(), func() (asynqlocker.Scheduler, error) { return nil, nil }), locker.ErrInvalid)

	// An instance whose scheduler cannot start, or cannot reach its Redis, lets another have its turn.
	for _, s := range []asynqlocker.Scheduler{failing{}, unreachable{}} {
		ctx, stop := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the first instance leads on"))
		starts := 0
		require.ErrorIs(t, asynqlocker.RunScheduler(ctx, l, t.Name(), func() (asynqlocker.Scheduler, error) {
			if starts++; starts == 2 {
				stop()
			}
			return s, nil
		}, leader.WithBackoff(time.Millisecond, time.Millisecond), leader.WithMinTerm(10*time.Millisecond)), context.Canceled)
	}
}

type unreachable struct{}

func (unreachable) Start() error { return nil }
func (unreachable) Shutdown()    {}
func (unreachable) Ping() error  { return errors.New("Redis is away") }

type failing struct{}

func (failing) Start() error { return errors.New("Redis is away") }
func (failing) Shutdown()    {}

// Two servers with ten workers each run at most three tasks of the queue at a time, and all tasks in the end; a queue
// without a limit is not held up. That a task waited is no failure.
func TestLimit(t *testing.T) {
	const limited, tasks = 3, 40
	rdb := redistest.Start(t).Client(t)
	client := asynq.NewClientFromRedisClient(rdb)
	for i := range tasks {
		for _, queue := range []string{"mail", "free"} {
			_, err := client.Enqueue(asynq.NewTask("work", fmt.Append(nil, i)), asynq.Queue(queue), asynq.MaxRetry(1)) // of which waiting takes none
			require.NoError(t, err)
		}
	}
	var inside, most, free, failed atomic.Int32
	var left sync.WaitGroup
	left.Add(2 * tasks)
	for range 2 {
		limit, err := asynqlocker.NewLimit(onRedis(t, rdb), map[string]int{"mail": limited},
			asynqlocker.WithWait(20*time.Millisecond), asynqlocker.WithRetryDelay(20*time.Millisecond))
		require.NoError(t, err)
		mux := asynq.NewServeMux()
		mux.Use(limit.Middleware)
		mux.HandleFunc("work", func(ctx context.Context, _ *asynq.Task) error {
			defer left.Done()
			if queue, _ := asynq.GetQueueName(ctx); queue == "free" {
				free.Add(1)
				return nil
			}
			now := inside.Add(1)
			defer inside.Add(-1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			time.Sleep(20 * time.Millisecond) // the work
			return nil
		})
		srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{
			Concurrency: 10, Queues: map[string]int{"mail": 1, "free": 1}, Logger: quiet{}, LogLevel: asynq.FatalLevel,
			IsFailure: func(err error) bool {
				if limit.IsFailure(err) {
					failed.Add(1)
					t.Errorf("a task failed: %v", err)
				}
				return limit.IsFailure(err)
			},
			RetryDelayFunc: limit.RetryDelay, DelayedTaskCheckInterval: 100 * time.Millisecond, TaskCheckInterval: 20 * time.Millisecond,
			JanitorInterval: time.Minute, ShutdownTimeout: 10 * time.Second,
		})
		require.NoError(t, srv.Start(mux))
		defer srv.Shutdown()
	}
	all := make(chan struct{})
	go func() {
		left.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(time.Minute):
		require.Fail(t, "not all tasks have run")
	}
	require.LessOrEqual(t, most.Load(), int32(limited))
	require.Greater(t, most.Load(), int32(1), "they ran one after the other")
	require.EqualValues(t, tasks, free.Load())
	require.Zero(t, failed.Load())
}

// A task on its last try, which is its only one here, waits for its permit: asynq would archive it.
func TestLastTry(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	_, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("work", nil), asynq.Queue("mail"), asynq.MaxRetry(0))
	require.NoError(t, err)
	waits := make(chan struct{}, 1)
	l, err := hashreentrant.New(rdb, locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventWaiting {
			waits <- struct{}{}
		}
	})))
	require.NoError(t, err)
	defer l.Close()
	permits, err := locker.NewSemaphore(onRedis(t, rdb), "asynq:queue:mail", 1)
	require.NoError(t, err)
	taken, err := permits.Acquire(t.Context())
	require.NoError(t, err)

	limit, err := asynqlocker.NewLimit(l, map[string]int{"mail": 1}, asynqlocker.WithWait(20*time.Millisecond))
	require.NoError(t, err)
	ran := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(limit.Middleware)
	mux.HandleFunc("work", func(context.Context, *asynq.Task) error {
		close(ran)
		return nil
	})
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Queues: map[string]int{"mail": 1}, Logger: quiet{}, LogLevel: asynq.FatalLevel, IsFailure: limit.IsFailure, RetryDelayFunc: limit.RetryDelay,
	})
	require.NoError(t, srv.Start(mux))
	defer srv.Shutdown()
	<-waits
	time.Sleep(200 * time.Millisecond) // ten times as long as WithWait lets other tries wait
	require.NoError(t, taken.Unlock(t.Context()))
	select {
	case <-ran:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the task has not run")
	}
}

// A task whose permit is lost has its context ended; an error that is the task's own is a failure.
func TestLimitErrors(t *testing.T) {
	l, err := memory.New()
	require.NoError(t, err)
	defer l.Close()
	limit, err := asynqlocker.NewLimit(l, nil)
	require.NoError(t, err)
	own := errors.New("own")
	handler := limit.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return own }))
	err = handler.ProcessTask(t.Context(), asynq.NewTask("x", nil))
	require.ErrorIs(t, err, own)
	require.True(t, limit.IsFailure(err))
	require.False(t, limit.IsFailure(nil))
	require.Greater(t, limit.RetryDelay(3, err, asynq.NewTask("x", nil)), 10*time.Second)
}

// The programs of README.md.
func TestReadme(t *testing.T) {
	docblocks.InFile(t, "README.md", "example_test.go")
	rdb := redistest.Start(t).Client(t)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	ended := make(chan error, 2)
	go func() { ended <- schedule(ctx, rdb) }()
	go func() {
		ended <- work(ctx, rdb, func(context.Context, *asynq.Task) error {
			stop()
			return nil
		})
	}()
	for range 2 {
		if err := <-ended; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	}
}

func TestMisuse(t *testing.T) {
	l, err := memory.New()
	require.NoError(t, err)
	defer l.Close()
	for name, opt := range map[string]asynqlocker.Option{
		"nil": nil, "wait": asynqlocker.WithWait(-1), "delay": asynqlocker.WithRetryDelay(0), "prefix": asynqlocker.WithPrefix("\xff"),
		"TTL": asynqlocker.WithLockOptions(locker.WithTTL(0)),
	} {
		_, err := asynqlocker.NewLimit(l, nil, opt)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err = asynqlocker.NewLimit(nil, nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = asynqlocker.NewLimit(l, map[string]int{"mail": 0})
	require.ErrorIs(t, err, locker.ErrInvalid)
	var nodes []redis.UniversalClient
	for range 3 {
		nodes = append(nodes, redistest.Start(t).Client(t))
	}
	noPermits, err := redlock.New(nodes)
	require.NoError(t, err)
	defer noPermits.Close()
	_, err = asynqlocker.NewLimit(noPermits, map[string]int{"mail": 1})
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorIs(t, asynqlocker.RunScheduler(t.Context(), l, "k", nil), locker.ErrInvalid)
	require.ErrorIs(t, asynqlocker.RunScheduler(t.Context(), nil, "k", func() (asynqlocker.Scheduler, error) { return failing{}, nil }), locker.ErrInvalid)
}
