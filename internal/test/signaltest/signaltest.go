// Package signaltest measures how soon a holder knows of signals.
package signaltest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/distlock/locker"
)

// Pair is a holder of locks, and a Locker that sends it signals.
type Pair struct{ Holder, Sender *locker.Client }

// Open makes both by two calls of open.
func Open(b *testing.B, open func() (*locker.Client, error)) Pair {
	b.Helper()
	return Pair{client(b, open), client(b, open)}
}

func client(b *testing.B, open func() (*locker.Client, error)) *locker.Client {
	b.Helper()
	c, err := open()
	must(b, err)
	b.Cleanup(func() { _ = c.Close() })
	return c
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// Measure calls once for as long as b asks for, and reports the median, which it returns, and the 99th percentile of
// the times. The holder listens all the while.
func (p Pair) Measure(b *testing.B, once func(*testing.B) time.Duration) (median time.Duration) {
	b.Helper()
	another := lock(b, p.Holder, "another")
	another.ReleaseRequested()
	once(b) // connections are made, and scripts become known
	var all []time.Duration
	for b.Loop() {
		all = append(all, once(b))
	}
	unlock(another)
	slices.Sort(all)
	median = all[len(all)/2]
	b.ReportMetric(float64(median.Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	return median
}

// Requested returns the time from RequestRelease to ReleaseRequested.
func (p Pair) Requested(b *testing.B) time.Duration {
	b.Helper()
	lease := lock(b, p.Holder, "k")
	defer unlock(lease)
	asked := lease.ReleaseRequested()
	start := time.Now()
	go func() { _ = p.Sender.RequestRelease(context.Background(), "k") }()
	return await(b, asked).Sub(start)
}

// Broken returns the time from ForceUnlock to Lost.
func (p Pair) Broken(b *testing.B) time.Duration {
	b.Helper()
	lease := lock(b, p.Holder, "k")
	defer unlock(lease)
	lost := lease.Lost()
	h, err := p.Sender.Inspect(context.Background(), "k")
	must(b, err)
	start, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Sender.ForceUnlock(context.Background(), h)
	}()
	took := await(b, lost).Sub(start)
	<-done // it wakes waiters, and must not meet the next lock
	return took
}

// Deleted returns the time from when del deletes key k by hand to Lost. The holder detects losses.
func (p Pair) Deleted(b *testing.B, del func() error) time.Duration {
	b.Helper()
	lease := lock(b, p.Holder, "k")
	defer unlock(lease)
	for end := lease.Deadline(); !lease.Deadline().After(end); { // it is watched when it has been renewed
		time.Sleep(time.Millisecond) // a renewal is no event of the lease
	}
	lost, start := lease.Lost(), time.Now()
	must(b, del())
	return await(b, lost).Sub(start)
}

func lock(b *testing.B, l *locker.Client, key string) *locker.Lease {
	b.Helper()
	lease, err := l.Lock(context.Background(), key)
	must(b, err)
	return lease
}

func unlock(lease *locker.Lease) { _ = lease.Unlock(context.Background()) }

func await(b *testing.B, c <-chan struct{}) time.Time {
	b.Helper()
	select {
	case <-c:
	case <-time.After(8 * time.Second): // the next renewal comes after 10 s
		b.Fatal("the holder knows of nothing")
	}
	return time.Now()
}
