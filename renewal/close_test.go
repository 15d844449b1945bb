package renewal

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		b := newBench(t, 0, func(ctx context.Context, _ string, batch []*claim, answer func(int, error)) {
			if batch[0].name != "flying" {
				answer(0, nil)
				return
			}
			<-ctx.Done()
			cause = ctx.Err()
			time.Sleep(s)
			answer(0, nil)
		}, nil)
		stopped := b.add("stopped", terms())
		b.Stop(&stopped.Entry)
		b.add("resting", Terms{Deadline: time.Now().Add(ttl)})
		b.add("flying", terms())
		b.until(11 * s)
		if got := b.Close(); len(got) != 2 || got[0].name == got[1].name || got[0] == stopped || got[1] == stopped {
			t.Fatalf("Close returned %d items, want the 2 that were still kept", len(got))
		}
		synctest.Wait()
		if !errors.Is(cause, context.Canceled) {
			t.Errorf("the batch's context ended with %v, want Canceled: Close cancels it", cause)
		}
		select {
		case <-b.Done():
			t.Error("Done is closed, want open: a batch is still running")
		default:
		}
		b.Wait()
		if got := b.since(); got != 12*s {
			t.Errorf("Wait returned at %v, want 12s: with the last batch", got)
		}
		if got := b.Close(); got != nil {
			t.Errorf("second Close returned %d items, want none", len(got))
		}
		if c := new(claim); b.Add(&c.Entry, c, terms()) || b.Expired(&c.Entry) || b.Stop(&c.Entry) {
			t.Error("Add, Expired or Stop = true after Close, want false: nothing is kept")
		}
		calls := len(b.calls)
		b.until(2 * ttl)
		b.wantNoLoss("Close tells its caller instead")
		if len(b.calls) != calls || b.count(&b.renewed) != 0 {
			t.Error("something was renewed after Close, want nothing")
		}
	})
}

// No goroutine while nothing is due, and no timer either while nothing is kept.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, nil, nil)
		before := runtime.NumGoroutine()
		claims := make([]*claim, 1000)
		for i := range claims {
			claims[i] = b.add("c", terms())
		}
		// Slack for goroutines of the runtime and of other tests.
		if got := runtime.NumGoroutine(); got > before+50 || working(b) != 0 {
			t.Errorf("%d goroutines more for 1000 claims, %d of them at work; want none per claim", got-before, working(b))
		}
		b.until(25 * s)
		for _, c := range claims {
			b.Stop(&c.Entry)
		}
		if n := working(b); n != 0 {
			t.Errorf("%d goroutines at work, want none: nothing is kept", n)
		}
		if b.armed != never || b.timer.Stop() {
			t.Error("the timer is set, want it stopped: nothing is kept")
		}
		if n := b.ends.len() + b.due.len(); n != 0 {
			t.Errorf("%d entries are left in the queues, want 0", n)
		}
	})
}

// working is how many goroutines the Scheduler has.
func working(b *bench) int {
	b.Scheduler.mu.Lock()
	defer b.Scheduler.mu.Unlock()
	return b.running
}

// A Lost that blocks delays no renewal, not even one that is due with it.
func TestBlockedCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		b := newBench(t, 0, nil, func(c *claim) { <-unblock })
		b.add("lost", Terms{Deadline: time.Now().Add(10 * s)})
		c := b.add("c", terms())
		b.until(25 * s)
		b.wantTimes(c, "a Lost that blocks is no concern of others", 10*s, 20*s)
		close(unblock)
	})
}

// Callbacks run outside the locks, whoever calls them.
func TestCallbackCallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		b = newBench(t, 0, all(errGone), func(c *claim) {
			if !b.Expired(&c.Entry) || b.Stop(&c.Entry) {
				t.Error("in Lost: Expired is false or Stop true, want the reverse: the claim is lost")
			}
			b.add("successor", Terms{Deadline: time.Now().Add(time.Hour)})
		})
		b.add("by timer", Terms{Deadline: time.Now().Add(5 * s)})
		b.add("by answer", terms())
		b.Fail(&b.add("by Fail", terms()).Entry, errGone)
		b.until(11 * s)
		c := b.add("by Expired", Terms{Deadline: time.Now()})
		b.Expired(&c.Entry)
		b.until(12 * s)
		if n := b.count(&b.lost); n != 4 {
			t.Errorf("%d claims lost, want 4", n)
		}
	})
}

func TestEntrySize(t *testing.T) {
	if got := unsafe.Sizeof(Entry[struct{}]{}); got > 160 {
		t.Errorf("an Entry takes %d bytes, want at most 160: there may be 100,000", got)
	}
}
