//go:build unix

// Package report brings the same faults about for each of several lock libraries, with real processes
// and real servers, and writes docs/report.md from what happened. Programs beside the libraries name
// them and their stores: benchmarks/report and strategy/etcd/internal/report.
//
// A holder and the next one are processes of their own. The holder asks its library all the time
// whether it holds the lock. A question that was asked after the next one had the lock, and was
// answered by "yes", proves that there were two holders. A busy machine makes the answers rarer, but
// no answer wrong.
package report

import (
	"context"
	"time"
)

// Subject is a library, or a strategy of locker, as a program sets it up.
type Subject struct {
	Name    string
	Module  string // the path of a library that is not ours; the page shows its version
	Nodes   int    // independent servers that it locks on
	Acks    bool   // it waits for a replica
	Watches bool   // its servers announce changes of keys

	Renews  bool   // it keeps a lock by itself for as long as it is held
	Reports bool   // it reports a loss to the holder by itself
	Tokens  bool   // it has fencing tokens
	Check   string // how a holder asks whether it holds the lock
	Remote  bool   // that question goes to the store

	Open func(t Target, ttl time.Duration) (Client, error)
}

// Ours reports whether the faults have to pass as the cases want them to.
func (s Subject) Ours() bool { return s.Module == "" }

// Target is where a process finds the store.
type Target struct {
	Addrs []string
	Kind  string // "" for servers of their own, or sentinel or cluster
}

// Client locks.
type Client func(ctx context.Context, key string) (Held, error)

// Held is a lock that is held.
type Held struct {
	Unlock func(context.Context) error
	// Holds asks whether it is still held; an error is no answer.
	Holds func(context.Context) (bool, error)
	Token int64
}

// Stage has the servers of one subject in one case.
type Stage interface {
	// Target is the store as process who sees it: 0 is the holder, 1 the next one.
	Target(who int) Target
	// Silence makes the link of a process go silent, or ends that.
	Silence(who int, on bool)
	// Cut resets the connections that there are.
	Cut()
	// Forget makes one server lose the locks that it has.
	Forget(ctx context.Context) error
	Close()
}
