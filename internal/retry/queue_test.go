package retry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errTrouble, errRefused = errors.New("trouble"), errors.New("refused")

type bench struct {
	*Queue
	t       *testing.T
	began   time.Time
	closing chan struct{}

	lock  sync.Mutex
	tries map[string][]time.Duration // when each task was tried
	fails map[string]error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, began: time.Now(), closing: make(chan struct{}), tries: make(map[string][]time.Duration), fails: make(map[string]error)}
	b.Queue = NewQueue(Config{
		Now:       func() time.Duration { return time.Since(b.began) },
		Closing:   b.closing,
		Timeout:   2 * time.Second,
		Permanent: func(err error) bool { return errors.Is(err, errRefused) },
		Panicked:  func(v any) error { return fmt.Errorf("%w: %v", errRefused, v) },
	})
	t.Cleanup(b.Stop)
	return b
}

// task adds a task that ends as results say, one after the other, and then well.
func (b *bench) task(shard, id string, until time.Duration, results ...error) {
	require.True(b.t, b.Add(shard, &Task{
		ID:    id,
		Until: until,
		Run: func(context.Context) (err error) {
			b.lock.Lock()
			defer b.lock.Unlock()
			n := len(b.tries[id])
			b.tries[id] = append(b.tries[id], time.Since(b.began))
			if n < len(results) {
				err = results[n]
			}
			return err
		},
		Fails: func(err error) { b.fail(id, err) },
	}))
}

func (b *bench) fail(id string, err error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.fails[id] = err
}

func (b *bench) wait(d time.Duration) {
	time.Sleep(d) // on the bubble's clock
	synctest.Wait()
}

func TestTasksAreTriedUntilTheySucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.task("another", "well", time.Minute)
		b.task("", "trouble", time.Minute, errTrouble, errTrouble, errTrouble)
		b.wait(0)
		require.Equal(t, []time.Duration{0}, b.tries["well"])
		require.Equal(t, 1, b.Len())
		b.wait(3 * PauseMax)
		require.Len(t, b.tries["trouble"], 4)
		require.Zero(t, b.Len())
		require.Empty(t, b.fails)
		<-b.Done()
	})
}

// A task is given up when trying again is pointless, when its time is over, and when it panics.
func TestTasksAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.task("a", "refused", time.Minute, errRefused)
		b.task("b", "late", time.Second, errTrouble, errTrouble, errTrouble, errTrouble, errTrouble, errTrouble, errTrouble, errTrouble, errTrouble)
		b.task("c", "too late", 0)
		require.True(t, b.Add("d", &Task{ID: "panics", Until: time.Minute, Run: func(context.Context) error { panic("bad") }, Fails: func(err error) { b.fail("panics", err) }}))
		b.wait(2*time.Second + PauseMax)
		require.ErrorIs(t, b.fails["refused"], errRefused)
		require.ErrorIs(t, b.fails["late"], errTrouble)
		require.Contains(t, b.fails, "too late")
		require.NoError(t, b.fails["too late"])
		require.Empty(t, b.tries["too late"])
		require.ErrorContains(t, b.fails["panics"], "bad")
		<-b.Done()
	})
}

// ErrRepeat is one more try, a second later, and no trouble; once the Queue is closing it is
// due at once.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.task("", "twice", time.Minute, ErrRepeat)
		b.task("", "its time is over", RepeatAfter/2, ErrRepeat)
		b.wait(2 * RepeatAfter)
		require.Equal(t, []time.Duration{0, RepeatAfter}, b.tries["twice"])
		require.NotContains(t, b.fails, "twice")
		b.task("", "at once", time.Minute, ErrRepeat)
		b.wait(0)
		close(b.closing)
		b.wait(0)
		require.Len(t, b.tries["at once"], 2)
	})
}

// However many tasks wait, a shard in trouble is tried by one after the other; the tasks of
// another shard go on.
func TestOneAfterTheOtherInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		trouble := make([]error, 1000)
		for i := range trouble {
			trouble[i] = errTrouble
		}
		for i := range 100 {
			b.task("down", fmt.Sprint("down", i), time.Minute, trouble...)
		}
		b.task("up", "up", time.Minute)
		b.wait(10 * time.Second)
		tries := 0
		for i := range 100 {
			tries += len(b.tries[fmt.Sprint("down", i)])
		}
		require.Less(t, tries, 60, "tries in 10 s, with pauses of half a second on average")
		require.Len(t, b.tries["up"], 1)
		require.Equal(t, 100, b.Len())
		b.Stop()
		b.wait(time.Minute)
		<-b.Done()
		require.Len(t, b.fails, 100)
		require.False(t, b.Add("down", &Task{ID: "after Stop"}))
	})
}

// A task that hangs ends with its timeout, and holds up the others for LateAfter.
func TestLateTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var ended time.Duration
		require.True(t, b.Add("", &Task{ID: "hangs", Until: time.Minute, Fails: func(error) {}, Run: func(ctx context.Context) error {
			if ended != 0 {
				return nil
			}
			<-ctx.Done()
			ended = time.Since(b.began)
			return ctx.Err()
		}}))
		synctest.Wait()
		b.task("", "behind", time.Minute)
		b.wait(LateAfter)
		require.Equal(t, []time.Duration{LateAfter}, b.tries["behind"])
		b.wait(10 * time.Second)
		require.Equal(t, 2*time.Second, ended)
		require.Zero(t, b.Len())
	})
}

// One of the tasks with one ID waits.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.task("", "first", time.Minute, errTrouble) // the others wait for the end of its pause
		synctest.Wait()
		b.task("", "same", time.Minute)
		b.task("", "same", time.Minute)
		b.wait(time.Minute)
		require.Len(t, b.tries["same"], 1)
	})
}

func TestBackoff(t *testing.T) {
	var b Backoff
	for i, most := range []time.Duration{2, 4, 8, 10, 10} {
		for range 1000 {
			c := b
			p := c.Next(time.Second, 10*time.Second)
			require.GreaterOrEqual(t, p, time.Second, i)
			require.LessOrEqual(t, p, most*time.Second, i)
		}
		b.Next(time.Second, 10*time.Second)
	}
	require.Equal(t, time.Second, new(Backoff).Next(time.Second, time.Second))
}
