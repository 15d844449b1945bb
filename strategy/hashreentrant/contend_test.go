package hashreentrant_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// contend locks the key, runs section and unlocks.
type contend func(ctx context.Context, section func()) error

// wanted is the key that contenders want.
const wanted = "k"

// contender locks with l.
func contender(l locker.Locker) contend {
	return func(ctx context.Context, section func()) error {
		lease, err := l.Lock(ctx, wanted)
		if err != nil {
			return err
		}
		section()
		return lease.Unlock(context.WithoutCancel(ctx))
	}
}

func work() { time.Sleep(time.Millisecond) } // of a section

// sections lets each contender run sections of 1 ms under the key until all of them together have run n,
// and returns how many each ran.
func sections(t *testing.T, n int, contenders []contend) []int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counts, total := make([]int, len(contenders)), 0 // changed in sections
	var all sync.WaitGroup
	for i, contend := range contenders {
		all.Go(func() {
			for ctx.Err() == nil {
				err := contend(ctx, func() {
					work()
					counts[i]++
					if total++; total == n {
						cancel()
					}
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	all.Wait()
	t.Log(counts)
	return counts
}

const contenderKind = "contender"

// serveContender does not return in a process that processes has started.
func serveContender() {
	child.Serve(contenderKind, func(parent child.Parent, addr string) error {
		ctx, cancel := parent.Context()
		defer cancel()
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		l, err := hashreentrant.New(rdb)
		if err != nil {
			return err
		}
		defer l.Close()
		contend := contender(l)
		for ctx.Err() == nil {
			if err := contend(ctx, work); err != nil && ctx.Err() == nil {
				return err
			}
			if _, err := parent.Write([]byte{0}); err != nil {
				return nil // the parent has seen enough
			}
		}
		return nil
	})
}

// processes is sections by so many processes, which lock at the server at addr.
func processes(t *testing.T, n int, addr string, count int) []int {
	t.Helper()
	ran, all := make(chan int), []*child.Child(nil)
	var readers sync.WaitGroup
	t.Cleanup(func() {
		for _, c := range all { // all end at the same time
			_ = c.Close()
		}
		for _, c := range all {
			require.NoError(t, c.Stop(10*time.Second))
		}
		readers.Wait()
	})
	for i := range count {
		c, err := child.Start(contenderKind, addr, nil)
		require.NoError(t, err)
		all = append(all, c)
		readers.Go(func() {
			for b := []byte{0}; ; {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				select {
				case ran <- i:
				case <-t.Context().Done():
				}
			}
		})
	}
	counts := make([]int, count)
	for range n {
		counts[<-ran]++
	}
	t.Log(counts)
	return counts
}
