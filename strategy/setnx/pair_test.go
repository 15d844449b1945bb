package setnx_test

import (
	"testing"
	"context"

	"github.com/distlock/locker/internal/redistest"
	"github.com/distlock/locker/strategy/setnx"
)

func BenchmarkPair(b *testing.B) {
	l, err := setnx.New(redistest.Shared(b).Client(b))
	if err != nil { b.Fatal(err) }
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		lease, err := l.Lock(ctx, "k")
		if err != nil { b.Fatal(err) }
		if err := lease.Unlock(ctx); err != nil { b.Fatal(err) }
	}
}
func BenchmarkPairParallel(b *testing.B) {
	l, err := setnx.New(redistest.Shared(b).Client(b))
	if err != nil { b.Fatal(err) }
	defer l.Close()
	b.ReportAllocs()
	b.SetParallelism(128)
	var keys = make(chan string, 1000)
	for i := range 1000 { keys <- string(rune('a'+i%26))+string(rune('0'+i/26)) }
	b.RunParallel(func(pb *testing.PB) {
		k := <-keys
		for pb.Next() {
		lease, err := l.Lock(context.Background(), k)
		if err != nil { b.Fatal(err) }
		if err := lease.Unlock(context.Background()); err != nil { b.Fatal(err) }
		}
	})
}
