package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/internal/test/soak/soaktest"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

// apart is a locker with a bug: each process has keys of its own.
var apart = soak.Strategy{Name: "apart", On: []soak.Topology{topology}, New: func(p soak.Process) (locker.Locker, error) {
	return open(p, fmt.Sprint(p.Index))
}}

func TestMain(m *testing.M) {
	soak.ServeWorker(append(strategies, apart)...)
	os.Exit(members.Tests{M: m}.Run())
}

// TestSoak is a short soak: `make soak-etcd` is a long one.
func TestSoak(t *testing.T) {
	t.Parallel()
	if members.Released() {
		t.Skip(members.ErrReleased)
	}
	soaktest.Sound(t, config(), strategies[0])
}

// TestSoakFinds: two processes that do not exclude one another are found.
func TestSoakFinds(t *testing.T) {
	t.Parallel()
	soaktest.Finds(t, config(), apart)
}
