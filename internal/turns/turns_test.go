package turns

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// key is a key at a server that processes release.
const key = "k"

// process is one of several that want the key.
type process struct {
	Turns
	watch *Watch
}

func processes(n int) []*process {
	ps := make([]*process, n)
	for i := range ps {
		ps[i] = new(process)
		ps[i].watch = ps[i].Watch(key)
	}
	return ps
}

// release releases the key: those who watch hear it.
func (p *process) release(all []*process) {
	p.Releasing(key)
	listeners := 0
	for _, o := range all {
		if o.watch != nil {
			o.watch.Heard(false)
			listeners++
		}
	}
	p.Released(key, listeners)
}

// waits returns how long p waits for its turn.
func (p *process) waits(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	require.NoError(t, p.Await(t.Context(), key))
	return time.Since(began)
}

// The oldest attempts at once, each younger one 2 ms later.
func TestOldestGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(4)
		for range 3 {
			for _, p := range ps {
				p.release(ps)
			}
		}
		for i, p := range ps {
			left, _ := p.left(key)
			require.Equal(t, time.Duration(i)*step, max(left, 0), "process %d", i)
		}
		select {
		case <-ps[0].watch.C():
		default:
			t.Fatal("the oldest is woken at once")
		}
		require.Equal(t, step, ps[1].waits(t))
		synctest.Wait()
		<-ps[1].watch.C()
	})
}

// A process that was granted the key after it had waited for older processes does not wait for these again.
func TestAbsentProcessesAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(4)
		p := ps[0]
		p.release(ps)
		require.Equal(t, 3*step, p.waits(t))
		p.Granted(key)
		p.release(ps)
		require.Zero(t, p.waits(t))

		p.Refused(key, true) // one of them is back
		p.release(ps)
		require.Equal(t, step, p.waits(t))
	})
}

// Without a Watch a process hears nothing, and waits for less.
func TestProcessWithoutWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Turns
		p.Released(key, 7)
		began := time.Now()
		require.NoError(t, p.Await(t.Context(), key))
		require.Equal(t, stepsUnheard*step, time.Since(began))
		p.Granted(key)
		p.Released(key, 7)
		left, _ := p.left(key)
		require.LessOrEqual(t, left, time.Duration(0))
		p.Released(key, 0)
		require.Zero(t, p.known.Load(), "alone")
	})
}

// A process does not wait for older ones while the key is held out of turn.
func TestHolderOutOfTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(4)
		p := ps[0]
		p.release(ps)
		p.Refused(key, false)
		ps[1].watch.Heard(false)
		p.watch.Heard(false)
		require.Zero(t, p.waits(t))
		p.release(ps)
		require.Zero(t, p.waits(t))
		time.Sleep(outOfTurnFor) // on the bubble's clock
		p.release(ps)
		require.Equal(t, 3*step, p.waits(t))
	})
}

// A release that is heard brings the turn nearer, also for an attempt that awaits it.
func TestReleasesBringTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(4)
		p := ps[0]
		p.release(ps)
		turn := make(chan time.Duration)
		go func() {
			began := time.Now()
			_ = p.Await(t.Context(), key)
			turn <- time.Since(began)
		}()
		for range 3 {
			time.Sleep(step / 4) // on the bubble's clock
			p.watch.Heard(false)
		}
		require.Equal(t, 3*step/4, <-turn)
	})
}

// A caller that leaves does not wait for its turn.
func TestAwaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(8)
		ps[0].release(ps)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, ps[0].Await(ctx, key), context.DeadlineExceeded)
	})
}

// A Watch that has ended is silent, and its key is forgotten.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := processes(2)
		w := ps[0].watch
		ps[0].release(ps)
		w.End()
		w.End()
		w.Heard(false)
		time.Sleep(time.Second) // on the bubble's clock: longer than any turn
		for range 2 {           // what was sent before may be there still
			if _, open := <-w.C(); !open {
				break
			}
		}
		w.Close()
		require.Zero(t, ps[0].known.Load())
	})
}

// Keys that are not used any more are dropped.
func TestKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Turns
		for i := range 10_000 {
			p.Released(fmt.Sprint("key", i), 3)
			time.Sleep(keptFor / 50) // on the bubble's clock
		}
		require.LessOrEqual(t, p.known.Load(), int32(150))
	})
}

// The keys of a burst are forgotten by the first release after a while, of whatever key.
func TestKeysOfABurstAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Turns
		for i := range 10_000 {
			p.Released(fmt.Sprint("key", i), 3)
		}
		time.Sleep(keptFor) // on the bubble's clock
		p.Released("alone", 0)
		require.Zero(t, p.known.Load())
	})
}
