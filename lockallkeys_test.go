package locker

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// A bad key is found before any of the others is taken, however many there are.
func TestLockAllChecksAllKeysFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		keys := []string{"\xff"} // sorts last
		for i := range 2 * atOnce {
			keys = append(keys, fmt.Sprintf("k%03d", i))
		}
		_, err := LockAll(t.Context(), b.Client, keys)
		wantErr(t, err, ErrInvalid, "a key is no UTF-8")
		b.wantSent(opAcquire, 0, "nothing was taken")
	})
}
