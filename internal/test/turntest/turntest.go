// Package turntest lets contenders want one key all the time, and counts how often each of them gets it.
package turntest

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Contend locks the key, runs section and unlocks.
type Contend func(ctx context.Context, section func()) error

// Key is the key that contenders want.
const Key = "k"

// By locks with l.
func By(l locker.Locker) Contend {
	return func(ctx context.Context, section func()) error {
		lease, err := l.Lock(ctx, Key)
		if err != nil {
			return err
		}
		section()
		return lease.Unlock(context.WithoutCancel(ctx))
	}
}

func section() { time.Sleep(time.Millisecond) } // the work under the lock

// Sections lets each contender run sections of 1 ms under the key until all of them together have run n,
// and returns how many each ran.
func Sections(t *testing.T, n int, contenders []Contend) []int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counts, total := make([]int, len(contenders)), 0 // changed in sections
	var all sync.WaitGroup
	for i, contend := range contenders {
		all.Go(func() {
			for ctx.Err() == nil {
				err := contend(ctx, func() {
					section()
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

const kind = "turntest contender"

// Serve does not return in a process that Processes has started. TestMain calls it.
func Serve(newLocker func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)) {
	child.Serve(kind, func(parent child.Parent, addr string) error {
		ctx, cancel := parent.Context()
		defer cancel()
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		l, err := newLocker(rdb)
		if err != nil {
			return err
		}
		defer l.Close()
		contend := By(l)
		for ctx.Err() == nil {
			if err := contend(ctx, section); err != nil && ctx.Err() == nil {
				return err
			}
			if _, err := parent.Write([]byte{0}); err != nil {
				return nil // the parent has seen enough
			}
		}
		return nil
	})
}

// Processes is Sections by so many processes, which lock at the server at addr.
func Processes(t *testing.T, n int, addr string, processes int) []int {
	t.Helper()
	sections := make(chan int)
	for i := range processes {
		c, err := child.Start(kind, addr, nil)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for b := []byte{0}; ; {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				select {
				case sections <- i:
				case <-t.Context().Done():
				}
			}
		}()
		t.Cleanup(func() {
			require.NoError(t, c.Stop(10*time.Second))
			<-done
		})
	}
	counts := make([]int, processes)
	for range n {
		counts[<-sections]++
	}
	t.Log(counts)
	return counts
}
