package etcdlike

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// tokensPerGrant is how many tokens one revision stands for, since the Locker can
// use some for hand-overs. Tokens stay below 2^53 while revisions do below 2^48.
const tokensPerGrant = 32

// Driver is a driver.Driver and a driver.Notifier on a Store, for locker.New.
type Driver struct {
	store   *Store
	watches context.Context // ends with Close
	close   context.CancelFunc
}

// NewDriver makes a driver on s.
func NewDriver(s *Store) *Driver {
	ctx, cancel := context.WithCancel(context.Background())
	return &Driver{store: s, watches: ctx, close: cancel}
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return "etcdlike" }

// Acquire makes a lease and, by one transaction, the key. A lease that gets no key
// is in nobody's way, and ends by itself if it cannot be revoked.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	lease, err := d.store.Grant(ctx, seconds(req.TTL))
	if err != nil {
		return driver.Answer{}, &driver.StoreError{Err: err, NotApplied: true}
	}
	res, err := d.store.Txn(ctx, []Cmp{CreatedAt(req.Key, 0)},
		[]Op{Put(req.Key, req.ID, lease)}, []Op{Get(req.Key)})
	if err != nil {
		return driver.Answer{}, err // the key may have been made
	}
	if res.Succeeded {
		return granted(req, res.Revision), nil
	}
	_ = d.store.Revoke(ctx, lease)
	held := res.KVs[0]
	if held.Value != req.ID {
		return driver.Answer{}, nil // Remaining is not needed: a Watch reports expiry
	}
	// The attempt is repeated, and the Locker counts the TTL from now: so must the store.
	if err := d.store.KeepAlive(ctx, held.Lease); err != nil {
		return driver.Answer{}, err
	}
	return granted(req, held.CreateRevision), nil
}

// The token is made of the revision that created the key: it is the same when the
// attempt is repeated, every later grant's is greater, and no counter is kept.
func granted(req driver.Request, revision int64) driver.Answer {
	a := driver.Answer{Granted: true}
	if req.Fencing {
		a.Token = revision * tokensPerGrant
		a.Tokens = min(req.Tokens, tokensPerGrant)
	}
	return a
}

// Renew renews the claims side by side, as each takes two round trips.
func (d *Driver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	var wg sync.WaitGroup
	var mu sync.Mutex // for one answer at a time
	for i, c := range claims {
		wg.Go(func() {
			lease, err := d.ifHeld(ctx, c)
			if err == nil {
				err = d.store.KeepAlive(ctx, lease)
			}
			if errors.Is(err, ErrLeaseNotFound) { // it ended after the look at the key
				err = driver.ErrLost
			}
			mu.Lock()
			defer mu.Unlock()
			answer(i, err)
		})
	}
	wg.Wait()
}

// Release deletes the key, and then its lease, which is no use to anybody.
func (d *Driver) Release(ctx context.Context, c driver.Claim) error {
	lease, err := d.ifHeld(ctx, c, Delete(c.Key))
	if err == nil {
		_ = d.store.Revoke(ctx, lease)
	}
	return err
}

// ifHeld does ops if c holds its key, and returns the key's lease. That the lease
// lives would not do: the key can have been deleted, or be another's by now.
func (d *Driver) ifHeld(ctx context.Context, c driver.Claim, ops ...Op) (LeaseID, error) {
	ops = append([]Op{Get(c.Key)}, ops...)
	res, err := d.store.Txn(ctx, []Cmp{ValueIs(c.Key, c.ID)}, ops, nil)
	if err != nil {
		return 0, err
	}
	if !res.Succeeded {
		return 0, driver.ErrLost
	}
	return res.KVs[0].Lease, nil
}

// Close ends the watches. The other methods need nothing that it ends.
func (d *Driver) Close() error {
	d.close()
	return nil
}

// Watch signals deletions, those by expiry included. Its ctx is for the call, which
// does not block here: the watch lasts until its own Close or the driver's.
func (d *Driver) Watch(_ context.Context, key string) (driver.Watch, error) {
	ctx, cancel := context.WithCancel(d.watches)
	w := watch{c: make(chan struct{}, 1), cancel: cancel}
	events := d.store.Watch(ctx, key)
	go func() {
		defer close(w.c)
		for e := range events {
			if e.Deleted {
				select {
				case w.c <- struct{}{}:
				default: // a signal is there already
				}
			}
		}
	}()
	return w, nil
}

type watch struct {
	c      chan struct{}
	cancel context.CancelFunc
}

func (w watch) C() <-chan struct{} { return w.c }
func (w watch) Close()             { w.cancel() }

// seconds rounds up: the store must not free a key before its TTL is over.
func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }
