package once_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/strategy/memory"
)

// A key that is kept is no loss: nothing in the log, and no event that an alert looks at.
func TestKeptKeyIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var mu sync.Mutex
		events := make(map[locker.EventKind]int)
		l := newLocker(t, memory.NewStore(), locker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
				mu.Lock()
				defer mu.Unlock()
				events[e.Kind]++
			})))
		h := guard(t, l, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, once.WithTTL(time.Minute))
		for i := range 5 {
			require.Equal(t, http.StatusCreated, serve(h, post("/orders", fmt.Sprint(i))).Code)
		}
		time.Sleep(2 * time.Minute) // on the bubble's clock
		require.NoError(t, l.Close())
		mu.Lock()
		defer mu.Unlock()
		require.Zero(t, events[locker.EventLost], "%v", events)
		require.Equal(t, events[locker.EventAcquired], events[locker.EventLetExpire], "%v", events)
		require.Empty(t, log.String())
	})
}

// The Locker's memory does not grow with the number of kept keys.
func TestKeptKeysTakeNoMemory(t *testing.T) {
	const n, most = 4000, 200 // bytes a key; 877 when each was remembered
	store := memory.NewStore()
	l := newLocker(t, store)
	h := guard(t, l, func(http.ResponseWriter, *http.Request) {}, once.WithTTL(locker.MaxTTL))
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range n {
		require.Equal(t, http.StatusOK, serve(h, post("/", fmt.Sprint(i))).Code)
		store.Flush() // what the store takes is not the Locker's
	}
	after := heap()
	require.Less(t, int64(after)-int64(before), int64(n*most))
	runtime.KeepAlive(h)
}

// A handler that returns has answered, if only by net/http's 200, whether or not its client has
// waited for that.
func TestImplicitAnswerWhoseClientHasLeft(t *testing.T) {
	handled := 0
	h := guard(t, newLocker(t, memory.NewStore()), func(_ http.ResponseWriter, r *http.Request) {
		handled++
		gone(r)
	})
	serve(h, leaving(t, post("/", "1")))
	require.Equal(t, http.StatusConflict, serve(h, leaving(t, post("/", "1"))).Code)
	require.Equal(t, 1, handled)
}

// leaving is a request whose client can hang up: see gone.
func leaving(t *testing.T, r *http.Request) *http.Request {
	t.Helper()
	cancel := new(context.CancelFunc)
	ctx, stop := context.WithCancel(context.WithValue(t.Context(), goneKey{}, cancel))
	t.Cleanup(stop)
	*cancel = stop
	return r.WithContext(ctx)
}
