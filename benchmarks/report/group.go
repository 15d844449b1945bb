//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/report"
)

// group is a master with a replica and Sentinels, or a cluster. Its processes have no proxies: they are sent from
// server to server.
type group struct {
	tb       report.TB
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster
}

func sentinels(report.Subject) (report.Stage, error) {
	g := &group{}
	g.sentinel = redistest.StartSentinel(&g.tb, 1, 1)
	return g, nil
}

func cluster(report.Subject) (report.Stage, error) {
	g := &group{}
	g.cluster = redistest.StartCluster(&g.tb, 3, 0)
	return g, nil
}

func (g *group) Target(int) report.Target {
	if g.cluster != nil {
		return report.Target{Addrs: g.cluster.Addrs(), Kind: "cluster"}
	}
	return report.Target{Addrs: g.sentinel.Addrs(), Kind: "sentinel"}
}

func (g *group) Silence(int, bool)            {}
func (g *group) Cut()                         {}
func (g *group) Forget(context.Context) error { return errors.ErrUnsupported }
func (g *group) Close()                       { g.tb.Close() }

// move moves the slot of a lock.
func (g *group) move(key, subject string) error {
	if subject == "rueidislock" {
		key = "rueidislock:0:" + key
	}
	shard := g.cluster.ShardOf(&g.tb, key)
	g.cluster.MoveSlot(&g.tb, g.cluster.Slot(&g.tb, key), (shard+1)%g.cluster.Shards())
	return nil
}
