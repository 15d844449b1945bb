package strategies

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// The store shows the metadata that a call was given, and the token of its lease, for as long as it
// has the lock: beside calls of the same Locker without metadata, which are handed over, and calls that
// give up while the lock is granted to them.
func TestMetadataOfACall(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for name, newLocker := range onRedis3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wg sync.WaitGroup
			for i := range 2 {
				l, err := newLocker(rdb, locker.WithPrefix(name+":"), locker.WithMetadata("job", "the Locker's"))
				require.NoError(t, err)
				t.Cleanup(func() { _ = l.Close() })
				for j := range 3 {
					wg.Go(func() { lockDescribed(t, l, fmt.Sprintf("%d of %d", j, i), j > 0, j > 1) })
				}
			}
			wg.Wait()
		})
	}
}

// lockDescribed takes the lock 50 times, with metadata of its own if described, and gives up early if impatient.
func lockDescribed(t *testing.T, l *locker.Client, job string, described, impatient bool) {
	t.Helper()
	var opts []locker.LockOption
	want := "the Locker's"
	if described {
		opts, want = append(opts, locker.WithMetadata("job", job)), job
	}
	if impatient {
		opts = append(opts, locker.WithWait(2*time.Millisecond))
	}
	for range 50 {
		lease, err := l.Lock(t.Context(), "k", opts...)
		if impatient && errors.Is(err, locker.ErrNotAcquired) {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		h, err := l.Inspect(t.Context(), "k")
		if err != nil || h.Metadata["job"] != want || described && h.Token != lease.Token() {
			t.Errorf("%q, token %d: the store shows %+v (%v)", want, lease.Token(), h, err)
		}
		unlockIn(t, lease)
	}
}
