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

// holderEvents are the keyspace notifications of what a holder does to its own key: a renewal is "expire", and a hold count is
// "hset". Any other is a question, such as "del", "expired", "append", and what later servers add.
var holderEvents = []string{"expire", "hset"}

// notifications are the flags of notify-keyspace-events that these need.
const notifications = "Kg$xeh"

var errSilent = fmt.Errorf("the server sends no keyspace notifications: want notify-keyspace-events %s, by redis.conf or CONFIG SET", notifications)

// followEvery is how often it is looked whether keys have moved to other servers of a cluster. It takes
// two looks to find that out: the first has the client ask the cluster.
const followEvery = 5 * time.Second

// lossWatch implements [driver.LossWatch]: a channel for each key. A subscription costs a command, and so does its
// end; a renewal costs a message.
type lossWatch struct {
	channels *redispubsub.Channels
	own      bool // nobody else closes them
	prefix   string
	changed  func(driver.Signal)
	life     context.Context
	end      context.CancelFunc // of life; no message is certain to come any more

	changing sync.Mutex           // one change of subscriptions at a time
	closer   map[string]io.Closer // by key

	mu     sync.Mutex
	claims map[string]driver.Claim // by key
}

// DetectLoss implements [driver.LossDetector]: a connection, or that of the subscriptions.
func (d *Driver) DetectLoss(ctx context.Context, changed func(driver.Signal)) (driver.LossWatch, error) {
	if c := d.conn.Cluster(); c != nil && c.Options().ClusterSlots != nil { // such as that of NewFailoverClusterClient
		return nil, fmt.Errorf("a cluster client with ClusterSlots does not show which database its keys are in, use NewFailoverClient: %w", errors.ErrUnsupported)
	}
	client, err := d.conn.Node(ctx, "")
	switch {
	case err != nil:
		return nil, storeError(err)
	case client == nil:
		return nil, fmt.Errorf("this Redis client cannot be made to subscribe: %w", errors.ErrUnsupported)
	}
	switch set, err := d.conn.Setting(ctx, client, "notify-keyspace-events"); {
	case err == nil && !suffices(set["notify-keyspace-events"]):
		return nil, &driver.StoreError{Err: errSilent, Permanent: true, NotApplied: true}
	case err != nil && !redisconn.IsRefusal(err):
		return nil, &driver.StoreError{Err: err, NotApplied: true}
	} // without the permission to ask it is not known
	w := &lossWatch{prefix: fmt.Sprintf("__keyspace@%d__:", client.Options().DB), changed: changed,
		claims: make(map[string]driver.Claim), closer: make(map[string]io.Closer)}
	if !d.IsCluster() {
		if w.channels, err = d.signals.of(d); err != nil {
			return nil, err
		}
	} else {
		w.channels, w.own = redispubsub.New(d.conn, ""), true
		w.channels.SetSharded(false)
	}
	w.life, w.end = context.WithCancel(context.Background())
	if w.own {
		go w.follow()
	}
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
	var begun, ended []string
	w.mu.Lock()
	for _, c := range more {
		w.claims[c.Key] = c
		if w.closer[c.Key] == nil {
			begun = append(begun, c.Key)
		}
	}
	for _, c := range less {
		if w.claims[c.Key].ID == c.ID { // else there is another claim of that key by now
			ended = append(ended, c.Key)
			delete(w.claims, c.Key)
		}
	}
	w.mu.Unlock()
	for _, key := range ended {
		_ = w.closer[key].Close()
		delete(w.closer, key)
	}
	return w.listen(ctx, begun)
}

// listen subscribes to the channels of keys. w.changing is held.
func (w *lossWatch) listen(ctx context.Context, keys []string) error {
	all := make([]redispubsub.Plain, len(keys))
	for i, key := range keys {
		all[i] = redispubsub.Plain{Key: key, Channel: w.prefix + key, Message: w.messages(key), Ended: w.end}
	}
	closers, err := w.channels.ListenPlain(ctx, all)
	if err != nil {
		if redisconn.IsRefusal(err) {
			err = &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
		}
		return err
	}
	for i, key := range keys {
		w.closer[key] = closers[i]
	}
	return nil
}

// messages returns what is called for each message on the channel of key: with "" when the subscription stands,
// and when it stands again on another connection. That may be to another server, which has lost the key or sends no
// notifications: the Locker begins anew, and asks about all of its claims.
func (w *lossWatch) messages(key string) func(event string) {
	stands := false
	return func(event string) {
		switch {
		case event == "" && stands:
			w.end()
		case event == "":
			stands = true
		case !slices.Contains(holderEvents, event):
			w.ask(key)
		}
	}
}

// ask makes the Locker ask the store about the claim of key.
func (w *lossWatch) ask(key string) {
	w.mu.Lock()
	c, ok := w.claims[key]
	w.mu.Unlock()
	if ok {
		w.changed(driver.Signal{Kind: driver.SignalBroken, Key: key, Claim: c.ID})
	}
}

// follow subscribes anew to the keys that have moved to another server of the cluster.
func (w *lossWatch) follow() {
	for bound.Sleep(w.life, nil, followEvery) {
		if w.move() != nil {
			w.end() // the Locker begins anew
		}
	}
}

// move subscribes to the keys that have moved where they are now, and makes the Locker ask about them: no
// message has shown what happened to them at the new server before.
func (w *lossWatch) move() error {
	ctx, cancel := context.WithTimeout(w.life, followEvery)
	defer cancel()
	w.changing.Lock()
	defer w.changing.Unlock()
	moved := w.channels.Moved(ctx, w.closer)
	for _, key := range moved {
		_ = w.closer[key].Close()
	}
	if err := w.listen(ctx, moved); err != nil {
		return err
	}
	for _, key := range moved {
		w.ask(key)
	}
	return nil
}

// Done implements [driver.LossWatch].
func (w *lossWatch) Done() <-chan struct{} { return w.life.Done() }

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
