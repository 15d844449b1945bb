package renewal

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type stressed struct {
	Entry[*stressed]
	ends atomic.Int32 // how often it was told to have ended
}

// TestStress lets everything happen at once to claims that all goroutines share.
// Each claim must end exactly once: by Stop, by Lost or by Close.
func TestStress(t *testing.T) {
	const maxBatch = 16
	var losses, stops, renewals atomic.Int64
	var s *Scheduler[*stressed]
	s = New(Config[*stressed]{
		MaxBatch: maxBatch,
		Renew: func(ctx context.Context, _ string, batch []*stressed, answer func(int, error)) {
			if len(batch) == 0 || len(batch) > maxBatch {
				t.Errorf("a batch of %d, want 1 to %d", len(batch), maxBatch)
			}
			stressRenew(ctx, len(batch), answer)
		},
		Final: func(err error) bool { return errors.Is(err, errGone) },
		Lost: func(c *stressed, _ error) {
			c.ends.Add(1)
			losses.Add(1)
			if !s.Expired(&c.Entry) || s.Stop(&c.Entry) {
				t.Error("in Lost: Expired is false or Stop true, want the reverse: the claim is lost")
			}
		},
		Renewed: func(*stressed, time.Duration) { renewals.Add(1) },
	})

	closing := time.Now().Add(300 * time.Millisecond)
	slots := make([]atomic.Pointer[stressed], 300)
	var mu sync.Mutex
	var claims []*stressed
	work := func() {
		var mine []*stressed
		for time.Now().Before(closing) {
			slot := &slots[rand.N(len(slots))]
			c := slot.Load()
			if c == nil || c.ends.Load() > 0 {
				c = new(stressed)
				if !s.Add(&c.Entry, c, stressTerms()) {
					break // closed by the quickest
				}
				mine = append(mine, c)
				slot.Store(c)
				continue
			}
			switch rand.N(100) {
			case 0:
				if s.Stop(&c.Entry) {
					c.ends.Add(1)
					stops.Add(1)
				}
			case 1:
				s.Fail(&c.Entry, errDown)
			case 2, 3:
				s.Extend(&c.Entry, time.Now())
			case 4:
				s.Deadline(&c.Entry)
			default:
				s.Expired(&c.Entry)
			}
		}
		for _, c := range s.Close() {
			c.ends.Add(1)
		}
		mu.Lock()
		defer mu.Unlock()
		claims = append(claims, mine...)
	}
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(work)
	}
	workers.Wait()
	s.Wait()

	for _, c := range claims {
		if n := c.ends.Load(); n != 1 {
			t.Fatalf("a claim ended %d times, want once: by Stop, Lost or Close", n)
		}
	}
	if losses.Load() == 0 || stops.Load() == 0 || renewals.Load() == 0 {
		t.Errorf("%d losses, %d stops and %d renewals of %d claims, want some of each or this tests nothing", losses.Load(), stops.Load(), renewals.Load(), len(claims))
	}
	if n := s.ends.len() + s.due.len(); n != 0 {
		t.Errorf("%d entries are left in the queues, want 0: all have ended", n)
	}
}

func stressTerms() Terms {
	validity := time.Millisecond + rand.N(50*time.Millisecond)
	tm := Terms{
		Shard:       []string{"a", "b"}[rand.N(2)],
		Interval:    validity / 3,
		Validity:    validity,
		Deadline:    time.Now().Add(validity),
		MaxRenewals: rand.N(5),
	}
	switch rand.N(4) {
	case 0:
		tm.Interval = 0
	case 1:
		tm.Limit = time.Now().Add(rand.N(50 * time.Millisecond))
	}
	return tm
}

// stressRenew answers in every way, right and wrong.
func stressRenew(ctx context.Context, n int, answer func(int, error)) {
	some := func() {
		for i := range n {
			switch rand.N(20) {
			case 0:
				answer(i, errGone)
			case 1, 2:
				answer(i, errDown)
			case 3: // none
			default:
				answer(i, nil)
			}
		}
	}
	switch rand.N(10) {
	case 0:
		panic("boom")
	case 1:
		<-ctx.Done()
	case 2:
		go some() // late, mostly
	case 3:
		var wg sync.WaitGroup
		wg.Go(some)
		wg.Go(some)
		wg.Wait()
	default:
		some()
	}
}
