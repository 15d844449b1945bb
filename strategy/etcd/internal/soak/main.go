// Command soak puts strategy etcd under faults, on three members, for as long as one likes, and checks
// what its users saw; see package soak of the main module. It is to be run in this module, whose
// internal/member it compiles.
//
//	go run ./internal/soak -duration=5m -faults=kill,freeze-leader
package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/etcd/register"

	"github.com/distlock/locker/strategy/etcd/internal/members"
)

const topology soak.Topology = "etcd"

var strategies = []soak.Strategy{
	on("etcd", 0),
	on("etcd+semaphore", 5),
	on("etcd+rwlock", locker.MaxPermits),
}

// on returns the strategy with keys of so many permits; 0: with locks.
func on(name string, permits int) soak.Strategy {
	return soak.Strategy{Name: name, On: []soak.Topology{topology}, Permits: permits, New: func(p soak.Process) (locker.Locker, error) {
		return open(p, "")
	}}
}

// open makes a Locker as a user does.
func open(p soak.Process, prefix string) (locker.Locker, error) {
	l, _, err := strategy.OpenURL(context.Background(), "etcd://"+strings.Join(p.Addrs, ",")+"?prefix="+prefix)
	return l, err
}

// own has leases that survive an election, which takes a second or two, and some that do not. A lease
// lasts for a second more than the TTL, and etcd looks for those that have ended twice a second; a process
// that has died in the line holds the others up for 3 s.
var own = &soak.Own{
	Name:   topology,
	TTLs:   []time.Duration{time.Second, 2 * time.Second, 3 * time.Second},
	Linger: 4 * time.Second,
	Faults: []soak.Fault{
		{Name: "kill-leader", Doc: "the leader is killed (kill -9) and started again"},
		{Name: "kill-follower", Doc: "a follower is killed and started again"},
		{Name: "freeze-leader", Doc: "the leader stands still (SIGSTOP) for up to four seconds"},
		{Name: "freeze-follower", Doc: "a follower stands still for up to four seconds"},
		{Name: "isolate-leader", Doc: "the leader is cut off from the other members for up to four seconds"},
		{Name: "isolate-follower", Doc: "a follower is cut off from the other members for up to four seconds"},
	},
	Start: start,
}

// config has calms that are longer than what a fault leaves behind.
func config() soak.Config {
	return soak.Config{Strategies: strategies, Own: own, Calm: 14 * time.Second}
}

// program runs under members.Tests.
type program struct{}

func (program) Run() int { return soak.Main(config(), os.Args[1:]) }

func main() {
	soak.ServeWorker(strategies...)
	os.Exit(members.Tests{M: program{}}.Run())
}
