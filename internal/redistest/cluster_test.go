//go:build unix

package redistest_test

import (
	"testing"
	"time"

	"github.com/distlock/locker/internal/redistest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := redistest.StartCluster(t, 3, 1)
	t.Logf("cluster %v", time.Since(start))
	start = time.Now()
	c.Failover(t, 0)
	t.Logf("failover %v", time.Since(start))
	start = time.Now()
	c.KillMaster(t, 1)
	t.Logf("kill %v", time.Since(start))
	start = time.Now()
	c.MoveSlot(t, 0, 2)
	t.Logf("move %v", time.Since(start))
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := redistest.StartSentinel(t, 2, 3)
	t.Logf("sentinel %v", time.Since(start))
	start = time.Now()
	s.Failover(t)
	t.Logf("failover %v", time.Since(start))
	start = time.Now()
	s.KillMaster(t)
	t.Logf("kill %v", time.Since(start))
}
