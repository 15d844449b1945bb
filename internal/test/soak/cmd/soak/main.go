// Command soak puts the strategies of this module under faults, for as long as one
// likes, and checks what their users saw; see package soak.
//
//	go run ./internal/test/soak/cmd/soak -duration=5m -topologies=single,sentinel -strategies=setnx
package main

import (
	"os"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

type constructor = func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)

// on returns a strategy on one client. Constructors take turns over the processes.
func on(name string, news ...constructor) soak.Strategy {
	return soak.Strategy{Name: name, On: []soak.Topology{soak.Single, soak.Sentinel, soak.Cluster}, New: func(p soak.Process) (locker.Locker, error) {
		return news[p.Index%len(news)](p.Clients[0], p.Options...)
	}}
}

// sticky has every other process keep locks.
func sticky(s soak.Strategy) soak.Strategy {
	newLocker := s.New
	s.Name += " sticky"
	s.New = func(p soak.Process) (locker.Locker, error) {
		if p.Index%2 == 0 {
			p.Options = append(p.Options, locker.WithSticky(300*time.Millisecond))
		}
		return newLocker(p)
	}
	return s
}

// detecting returns the strategy with WithLossDetection in each process.
func detecting(s soak.Strategy) soak.Strategy {
	newLocker := s.New
	s.Name += " detecting"
	s.New = func(p soak.Process) (locker.Locker, error) {
		p.Options = append(p.Options, locker.WithLossDetection())
		return newLocker(p)
	}
	return s
}

// acked returns a strategy that waits for the replica.
func acked(name string, newLocker constructor, acks func(int, time.Duration) locker.Option) soak.Strategy {
	const confirmed = 500 * time.Millisecond // by then
	return soak.Strategy{Name: name, On: []soak.Topology{soak.Sentinel, soak.Cluster}, Acked: true, New: func(p soak.Process) (locker.Locker, error) {
		return newLocker(p.Clients[0], append(p.Options, acks(1, confirmed))...)
	}}
}

// semaphores is on with keys of so many permits.
func semaphores(name string, permits int, news ...constructor) soak.Strategy {
	s := on(name, news...)
	s.Permits = permits
	return s
}

var strategies = []soak.Strategy{
	on("setnx", setnx.New),
	on("hashreentrant", hashreentrant.New),
	on("blpop", blpop.New),
	on("mixed", setnx.New, hashreentrant.New, blpop.New), // they exclude one another
	sticky(on("setnx", setnx.New)),
	sticky(on("hashreentrant", hashreentrant.New)),
	sticky(on("blpop", blpop.New)),
	sticky(on("mixed", setnx.New, hashreentrant.New, blpop.New)),
	detecting(on("setnx", setnx.New)),
	detecting(on("hashreentrant", hashreentrant.New)),
	detecting(on("blpop", blpop.New)),
	acked("setnx+acks", setnx.New, setnx.WithReplicaAcks),
	acked("hashreentrant+acks", hashreentrant.New, hashreentrant.WithReplicaAcks),
	acked("blpop+acks", blpop.New, blpop.WithReplicaAcks),
	semaphores("setnx+semaphore", 5, setnx.New),
	semaphores("hashreentrant+semaphore", 5, hashreentrant.New),
	semaphores("blpop+semaphore", 5, blpop.New),
	semaphores("mixed+semaphore", 3, setnx.New, hashreentrant.New), // they share permits
	semaphores("hashreentrant+rwlock", locker.MaxPermits, hashreentrant.New),
	{Name: "redlock", On: []soak.Topology{soak.Quorum}, New: func(p soak.Process) (locker.Locker, error) {
		return redlock.New(p.Clients, p.Options...)
	}},
}

func main() {
	soak.ServeWorker(strategies...)
	os.Exit(soak.Main(soak.Config{Strategies: strategies}, os.Args[1:]))
}
