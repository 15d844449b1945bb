package permitstest

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
)

// Bid lets a caller wait for n permits that are not free, until read returns the caller's bid. The caller waits no
// longer then.
func Bid(t *testing.T, sem *locker.Semaphore, n int, read func() string) (bid string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = sem.AcquireN(ctx, n)
	}()
	defer func() { leave(); <-left }()
	pace.Eventually(t, 20*time.Second, "the caller bids", func() bool {
		bid = read()
		return bid != ""
	})
	return bid
}
