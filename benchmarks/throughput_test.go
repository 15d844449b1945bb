package benchmarks

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// BenchmarkPairs: Lock and Unlock of free keys, from one goroutine and from 256
// with a key each. plain-go-redis is the floor: two commands without a library.
func BenchmarkPairs(b *testing.B) {
	for _, goroutines := range []int{1, 256} {
		run := func(name string, pair func(key string) error) {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, goroutines), func(b *testing.B) {
				var n atomic.Int64
				b.SetParallelism(goroutines) // times GOMAXPROCS; near enough
				if goroutines == 1 {
					for b.Loop() {
						if err := pair("pairs:0"); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					key := fmt.Sprintf("pairs:%d", n.Add(1))
					for pb.Next() {
						if err := pair(key); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}

		ctx := context.Background()
		floor := redistest.Shared(b).Client(b)
		compareAndDelete := redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)
		run("plain-go-redis", func(key string) error {
			if err := floor.SetArgs(ctx, key, "me", redis.SetArgs{Mode: "NX", TTL: 30e9}).Err(); err != nil {
				return err
			}
			return compareAndDelete.Run(ctx, floor, []string{key}, "me").Err()
		})
		for _, s := range strategies {
			l := open(b, redistest.Shared(b).Client(b), s.new)
			run(s.name, func(key string) error {
				lease, err := l.Lock(ctx, key)
				if err != nil {
					return err
				}
				return lease.Unlock(ctx)
			})
		}
	}
}
