package locker

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const (
	// renewBatchSize is how many claims a call of the driver's Renew gets at most.
	renewBatchSize = 256
	// renewCalls is how many calls of the driver's Renew may be under way for one shard. The claims
	// that are due beyond that wait here. In the driver they would wait behind all others until the
	// timeout of their batch. A server that was slow for some seconds would answer few in time; the
	// others would come again, and be lost: see docs/decisions/0025-speed.md.
	renewCalls = 16
)

// backlogs are the claims whose renewal is due and has not been sent, by shard.
type backlogs struct {
	mu      sync.Mutex
	byShard map[string]*backlog
}

// backlog has the claims of one shard. It lives as long as calls of Renew are under way there.
type backlog struct {
	calls int // of Renew, under way
	due   dueClaims
}

// add adds claims. It reports whether the caller is to make calls of Renew, with what next returns.
func (b *backlogs) add(shard string, due []dueClaim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.byShard[shard]
	if of == nil {
		if b.byShard == nil {
			b.byShard = make(map[string]*backlog)
		}
		of = &backlog{}
		b.byShard[shard] = of
	}
	for _, d := range due {
		of.due = append(of.due, d)
		heap.Fix(&of.due, len(of.due)-1) // heap.Push would allocate
	}
	if of.calls == renewCalls || len(of.due) == 0 {
		b.forget(shard, of)
		return false
	}
	of.calls++
	return true
}

// next takes the claims that end first. When none is left, the caller is to make no more calls.
func (b *backlogs) next(shard string, batch []*claim) []*claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.byShard[shard]
	for last := len(of.due) - 1; last >= 0 && len(batch) < renewBatchSize; last-- {
		batch = append(batch, of.due[0].c)
		of.due[0] = of.due[last]
		of.due[last] = dueClaim{}
		if of.due = of.due[:last]; last > 0 {
			heap.Fix(&of.due, 0)
		}
	}
	if len(batch) == 0 {
		of.calls--
		b.forget(shard, of)
	}
	return batch
}

// forget drops a backlog that is not used; b.mu is held.
func (b *backlogs) forget(shard string, of *backlog) {
	if of.calls == 0 && len(of.due) == 0 {
		delete(b.byShard, shard)
	}
}

// dueClaim is a claim that waits for its renewal to be sent. It may be given back or lost meanwhile.
type dueClaim struct {
	end time.Duration // its deadline when it came
	c   *claim
}

// dueClaims is a heap: the claim that ends first is in front.
type dueClaims []dueClaim

func (d dueClaims) Len() int           { return len(d) }
func (d dueClaims) Less(i, j int) bool { return d[i].end < d[j].end }
func (d dueClaims) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d dueClaims) Push(any)           { panic("not used") }
func (d dueClaims) Pop() any           { panic("not used") }

// renewDue renews claims of one shard that are due, and then those that have come meanwhile. If
// enough calls of Renew are under way, it leaves the claims to them.
func (e *Client) renewDue(ctx context.Context, claims []*claim) {
	shard := ""
	if e.sharder != nil {
		shard = e.sharder.Shard(claims[0].Key)
	}
	due := make([]dueClaim, 0, len(claims))
	now := e.sched.Now()
	for _, c := range claims {
		if end, ok := c.beginRenewal(now); ok {
			due = append(due, dueClaim{end, c})
		}
		c.giveUpKept().freeUnclaimed() // an Unlock from now on keeps no claim that is in renewal
	}
	if !e.backlogs.add(shard, due) {
		return
	}
	batch := make([]*claim, 0, renewBatchSize)
	for batch = e.backlogs.next(shard, batch); len(batch) > 0; batch = e.backlogs.next(shard, batch[:0]) {
		if ctx.Err() == nil { // else the Locker is closed
			e.renewBatch(ctx, batch)
		}
	}
}
