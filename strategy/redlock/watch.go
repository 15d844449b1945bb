package redlock

import (
	"context"
	"io"
	"maps"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/wake"
)

// watch implements [driver.Watch] by the nodes' release notices: it signals when a
// majority has given notice, so that the attempt that follows finds one free.
type watch struct {
	wake.Signal
	subscriptions

	told map[int]time.Time // when a node gave notice, since the last signal; mu guards it
}

// noticeWindow is how long a node's notice waits for those of others about the
// same release. What is older was about something else.
const noticeWindow = 250 * time.Millisecond

// Watch implements [driver.Notifier].
func (d *quorumDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w := &watch{Signal: wake.New(), told: make(map[int]time.Time)}
	w.d, w.over = d, func() { close(w.Signal) }
	err := w.open(ctx, func(ctx context.Context, n *node, i int) (io.Closer, error) {
		return n.channels.Listen(ctx, key, func(string) { w.notice(i) }, func() { w.end(i) })
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// notice is called when node i gives notice.
func (w *watch) notice(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.ended {
		return
	}
	now := time.Now()
	maps.DeleteFunc(w.told, func(_ int, at time.Time) bool { return now.Sub(at) > noticeWindow })
	w.told[i] = now
	// A lock that was held for a moment is on a majority only, of which some may be mute.
	if len(w.told) < max(1, w.d.quorum-len(w.mute)) {
		return
	}
	clear(w.told)
	w.Send()
}
