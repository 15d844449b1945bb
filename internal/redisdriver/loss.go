package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redispubsub"
)

// lossEvents are the keyspace notifications after which a key may not be the holder's any more. Renewals are
// "expire", and hold counts "hset": they are none of these.
var lossEvents = []string{"del", "expired", "evicted", "set", "hdel", "rename_from", "rename_to", "restore", "move_from", "copy_to", "sortstore"}

// notifications are the flags of notify-keyspace-events that these need.
const notifications = "Kg$xeh"

var errSilent = fmt.Errorf("the server sends no keyspace notifications: want notify-keyspace-events %s, by redis.conf or CONFIG SET", notifications)

// followEvery is how often it is looked whether keys have moved to other servers of a cluster.
const followEvery = 5 * time.Second

// lossWatch implements [driver.LossWatch]: a channel for each key. A subscription costs a command, and so does its
// end; a renewal costs a message.
type lossWatch struct {
	channels *redispubsub.Channels
	own      bool // nobody else closes them
	prefix   string
	changed  func(driver.Signal)
	over     sync.Once
	done     chan struct{}

	changing sync.Mutex // one change of subscriptions at a time

	mu     sync.Mutex
	claims map[string]driver.Claim // by key
	closer map[string]io.Closer
}

// DetectLoss implements [driver.LossDetector]: a connection, or that of the subscriptions.
func (d *Driver) DetectLoss(ctx context.Context, changed func(driver.Signal)) (driver.LossWatch, error) {
	client, err := d.conn.Node(ctx, "")
	switch {
	case err != nil:
		return nil, storeError(err)
	case client == nil:
		return nil, fmt.Errorf("this Redis client cannot be made to subscribe: %w", errors.ErrUnsupported)
	}
	switch set, err := client.ConfigGet(ctx, "notify-keyspace-events").Result(); {
	case err == nil && !suffices(set["notify-keyspace-events"]):
		return nil, &driver.StoreError{Err: errSilent, Permanent: true, NotApplied: true}
	case err != nil && !redisconn.IsRefusal(err):
		return nil, &driver.StoreError{Err: err, NotApplied: true}
	} // without the permission to ask it is not known
	w := &lossWatch{prefix: fmt.Sprintf("__keyspace@%d__:", client.Options().DB), changed: changed, done: make(chan struct{}),
		claims: make(map[string]driver.Claim), closer: make(map[string]io.Closer)}
	if !d.IsCluster() {
		w.channels, err = d.signals.of(d)
		return w, err
	}
	w.channels, w.own = redispubsub.New(d.conn, ""), true
	w.channels.SetSharded(false)
	go w.follow()
	return w, nil
}

// suffices reports whether a value of notify-keyspace-events has all flags that are needed.
func suffices(set string) bool {
	for _, flag := range notifications {
		if !strings.ContainsRune(set, flag) && (flag == 'K' || !strings.ContainsRune(set, 'A')) {
			return false
		}
	}
	return true
}

// Watch implements [driver.LossWatch].
func (w *lossWatch) Watch(ctx context.Context, more, less []driver.Claim) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	var ended []io.Closer
	var begin []string
	w.mu.Lock()
	for _, c := range more {
		w.claims[c.Key] = c
		if w.closer[c.Key] == nil {
			begin = append(begin, c.Key)
		}
	}
	for _, c := range less {
		if w.claims[c.Key].ID == c.ID { // else there is another claim of that key by now
			ended = append(ended, w.closer[c.Key])
			delete(w.claims, c.Key)
			delete(w.closer, c.Key)
		}
	}
	w.mu.Unlock()
	for _, closer := range ended {
		_ = closer.Close()
	}
	return w.listen(ctx, begin)
}

// listen subscribes to the channels of keys.
func (w *lossWatch) listen(ctx context.Context, keys []string) error {
	all := make([]redispubsub.Plain, len(keys))
	for i, key := range keys {
		all[i] = redispubsub.Plain{Key: key, Channel: w.prefix + key, Message: func(event string) { w.happened(key, event) }, Ended: w.end}
	}
	closers, err := w.channels.ListenPlain(ctx, all)
	if err != nil {
		if redisconn.IsRefusal(err) {
			err = &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
		}
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, key := range keys {
		w.closer[key] = closers[i]
	}
	return nil
}

// happened passes on what may be a loss.
func (w *lossWatch) happened(key, event string) {
	if !slices.Contains(lossEvents, event) {
		return
	}
	w.mu.Lock()
	c, ok := w.claims[key]
	w.mu.Unlock()
	if ok {
		w.changed(driver.Signal{Kind: driver.SignalBroken, Key: key, Claim: c.ID})
	}
}

// follow subscribes anew to the keys that have moved to another server of the cluster. The server that a key leaves
// sends a "del", by which the Locker asks.
func (w *lossWatch) follow() {
	for bound.Sleep(context.Background(), w.done, followEvery) {
		ctx, cancel := context.WithTimeout(context.Background(), followEvery)
		err := w.move(ctx)
		cancel()
		if err != nil {
			w.end() // the Locker begins anew
		}
	}
}

func (w *lossWatch) move(ctx context.Context) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	var moved []string
	w.mu.Lock()
	for key, closer := range w.closer {
		if w.channels.HasMoved(ctx, key, closer) {
			moved = append(moved, key)
		}
	}
	w.mu.Unlock()
	for _, key := range moved {
		_ = w.closer[key].Close()
	}
	return w.listen(ctx, moved)
}

func (w *lossWatch) end() { w.over.Do(func() { close(w.done) }) }

// Done implements [driver.LossWatch].
func (w *lossWatch) Done() <-chan struct{} { return w.done }

// Close implements [driver.LossWatch].
func (w *lossWatch) Close() {
	w.end()
	w.changing.Lock()
	defer w.changing.Unlock()
	for _, closer := range w.closer {
		_ = closer.Close()
	}
	if w.own {
		w.channels.Close()
	}
}
