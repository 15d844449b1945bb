package locker

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// Holder describes who holds a key, as far as the store knows; see [driver.Holder] for its fields. Key
// is without the Locker's prefix.
type Holder = driver.Holder

const (
	maxMetadataLen = 512
	wakeTTL        = time.Second // of the lock that is taken to wake waiters
)

// WithMetadata keeps in the store who holds a lock, for [Client.Inspect]: the name of the host,
// the id of the process, and pairs of a name and a value, of any characters, at most 512 bytes in
// all when they are escaped. A pair named host or pid replaces ours. The pairs become
// part of the claim's id, and so of [Lease.Owner] unless the caller named one: each command
// is longer by as much, and there is no other cost. Default none: an id is a UUID and a number.
//
// Given to one call it replaces the constructor's. The store then shows the pairs for as long as that
// call's lock lasts: the lock is not handed over inside the process (see [WithHandOver]).
func WithMetadata(pairs ...string) LockOption {
	return lockOption(func(o *callSettings) {
		host, _ := os.Hostname()
		values := url.Values{"host": {host}, "pid": {strconv.Itoa(os.Getpid())}}
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == "" {
				o.refuse("WithMetadata: a name is empty")
			}
			values.Set(pairs[i], pairs[i+1])
		}
		o.metadata = driver.MetadataMark + values.Encode()
		switch {
		case len(pairs)%2 != 0:
			o.refuse("WithMetadata: the name %q has no value", pairs[len(pairs)-1])
		case len(o.metadata) > maxMetadataLen:
			o.refuse("WithMetadata: %d bytes, with what is escaped; at most %d are allowed", len(o.metadata), maxMetadataLen)
		}
	})
}

// Inspect returns who holds key; Held is false if it is free. It sends one command, one for
// each node with redlock. It fails with [ErrConflict] when the key holds something that is no
// lock, with [ErrUnavailable] and [ErrClosed], and with [ErrInvalid] and [errors.ErrUnsupported] if the driver
// is no [driver.Inspector]; every driver of this module is one. It waits for 4 s at most.
func (e *Client) Inspect(ctx context.Context, key string) (h Holder, err error) {
	if err := checkKey(key, e.set.prefix+key); err != nil {
		return Holder{}, err
	}
	c, d, err := e.administer(ctx, "inspect", key)
	if err != nil {
		return Holder{}, err
	}
	defer c.leave()
	err = c.command(commandTimeout, func(ctx context.Context) (err error) {
		h, err = d.Inspect(ctx, c.key)
		return err
	})
	if err != nil {
		return Holder{}, c.inspection(err)
	}
	h.Key = key
	return h, nil
}

// Permits goes through the claims that have permits of key, in no order: who has how many of them. A claim
// that comes or goes meanwhile may be left out. [Client.ForceUnlock] of one frees its permits. It costs one
// command for about a hundred claims, and needs a driver that is a [driver.PermitInspector].
func (e *Client) Permits(ctx context.Context, key string) iter.Seq2[Holder, error] {
	return func(yield func(Holder, error) bool) {
		if err := checkKey(key, e.set.prefix+key); err != nil {
			yield(Holder{}, err)
			return
		}
		c, _, err := e.administer(ctx, "look for the permits of", key)
		if err != nil {
			yield(Holder{}, err)
			return
		}
		c.leave() // the body of the loop is the caller's: Close is not to wait for it
		d, ok := e.driver.(driver.PermitInspector)
		if !ok {
			yield(Holder{}, c.inspection(errors.ErrUnsupported))
			return
		}
		for h, err := range d.PermitClaims(ctx, c.key) {
			if err != nil {
				err = c.inspection(err)
			}
			if h.Key = key; !yield(h, err) || err != nil {
				return
			}
		}
	}
}

// administer readies a command of an operator, which is under way until the call's stripe is
// left.
func (e *Client) administer(ctx context.Context, op, key string) (*call, driver.Inspector, error) {
	if ctx == nil {
		return nil, nil, invalid("to %s a lock needs a context", op)
	}
	full := e.set.prefix + key
	c := &call{e: e, callSettings: e.set.call, ctx: ctx, caller: ctx, op: op, key: full, s: e.stripeOf(full)}
	c.ttl = wakeTTL
	d, ok := e.driver.(driver.Inspector)
	if !ok {
		return nil, nil, c.inspection(errors.ErrUnsupported)
	}
	if !c.mayEnter() {
		return nil, nil, c.fail(ErrClosed, nil, "")
	}
	return c, d, nil
}

// inspection makes the error of a command that failed.
func (c *call) inspection(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return c.fail(ErrInvalid, err, "the driver does not show who holds a lock")
	}
	return c.unavailable(err, "")
}

// Holders goes through the locks under the Locker's prefix whose keys match a glob pattern, in no
// order. In a pattern * stands for any characters, ? for one character and [abc] for one of these; \
// makes the next character plain. A lock that comes or goes meanwhile may be left out. A lock that
// moves to another node of a cluster may come twice. Keys that hold no lock are left out. If a Holder with a
// Key comes with an error, the error is about that key only. Any other error ends the loop.
//
// On Redis it looks at every key of the database, a thousand at a time. It asks for the holders of 64
// keys at a time, which share round trips. It needs a driver that is a [driver.Inspector].
func (e *Client) Holders(ctx context.Context, pattern string) iter.Seq2[Holder, error] {
	return func(yield func(Holder, error) bool) {
		c, d, err := e.administer(ctx, "look for", pattern)
		if err != nil {
			yield(Holder{}, err)
			return
		}
		c.leave() // the body of the loop is the caller's: Close is not to wait for it
		var batch []string
		for full, err := range d.Keys(ctx, plainGlob.Replace(e.set.prefix)+pattern) {
			if err != nil {
				yield(Holder{}, c.inspection(err))
				return
			}
			key := strings.TrimPrefix(full, e.set.prefix)
			if checkKey(key, full) != nil {
				continue // no Locker can have it
			}
			if batch = append(batch, key); len(batch) == inspectedAtOnce {
				if !e.inspectAll(ctx, batch, yield) {
					return
				}
				batch = batch[:0]
			}
		}
		e.inspectAll(ctx, batch, yield)
	}
}

// inspectedAtOnce is small enough for a pool of one connection: another command waits there for this many
// commands at most.
const inspectedAtOnce = 64

// inspectAll inspects keys at the same time, and yields those that are held. It reports whether to go on.
func (e *Client) inspectAll(ctx context.Context, keys []string, yield func(Holder, error) bool) bool {
	holders, errs := make([]Holder, len(keys)), make([]error, len(keys))
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() { holders[i], errs[i] = e.Inspect(ctx, key) })
	}
	all.Wait()
	for i, h := range holders {
		switch err := errs[i]; {
		case errors.Is(err, ErrConflict), err == nil && !h.Held:
		case err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed)):
			yield(Holder{}, err)
			return false
		case err != nil:
			h.Key = keys[i]
			fallthrough
		default:
			if !yield(h, err) {
				return false
			}
		}
	}
	return true
}

var plainGlob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// ForceUnlock frees the key of h, whoever shares the lock. h is from [Client.Inspect], [Client.Holders] or
// [Client.Permits]:
//
//	h, err := client.Inspect(ctx, "deploy")
//	...
//	err = client.ForceUnlock(ctx, h)
//
// ForceUnlock wakes the waiters of this strategy: it takes the key and gives it back. Waiters of other strategies
// find the key free within about a second. Until ForceUnlock returns, a TryLock may be refused. The fencing token of
// the next holder is greater than that of each earlier one.
//
// It fails with [ErrNotHeld] if the key is free, or if the grant that Inspect returned has ended. (A
// hand-over inside the holder's process keeps the grant: see [WithHandOver].) It fails with
// [ErrConflict], and frees nothing, if h.ID is "" or the lock is on other servers, too. ForceUnlock
// recognises a lock of another library by its value only. A later lock may have this value, too: Redisson's
// value names a thread, which may lock again. It fails with [ErrUnavailable] and [ErrClosed], and with [ErrInvalid]
// and [errors.ErrUnsupported] if the driver is no [driver.Inspector]. It waits for 4 s at most for each of its commands.
//
// The holder learns of it at its next renewal, or earlier if it listens (see [Lease.ReleaseRequested]): then within
// three round trips, two on a single Redis and with redlock, four with strategy/etcd. Until then there may be two
// holders, and the earlier holder's process may hand its lock over.
func (e *Client) ForceUnlock(ctx context.Context, h Holder) error {
	if err := checkKey(h.Key, e.set.prefix+h.Key); err != nil {
		return err
	}
	c, d, err := e.administer(ctx, "force unlock of", h.Key)
	if err != nil {
		return err
	}
	defer c.leave()
	switch {
	case !h.Held:
		return c.fail(ErrNotHeld, errors.New("the given Holder describes a free key"), "")
	case h.ID == "" && h.Limit > 0:
		return c.fail(conflict("the given Holder describes a key with permits"), nil, "free the claims that Permits returns, one by one")
	case h.ID == "":
		return c.fail(ErrConflict, errors.New("the key has a lock of an unknown library, which cannot be distinguished from a later one"), "inspect it, and delete the key yourself if necessary")
	}
	h.Key = c.key
	own := c.ownShare(h)
	err = c.command(commandTimeout, func(ctx context.Context) error { return d.Break(ctx, h) })
	switch {
	case isLost(err):
		return c.fail(ErrNotHeld, errors.New("the given holder has released or lost the key since"), "inspect it again")
	case err != nil:
		return c.inspection(err)
	}
	if own != nil {
		_ = own.denied() // its lease is lost now, and not at its next renewal
	}
	c.signalBroken(h)
	if h.Limit == 0 {
		c.wakeWaiters()
	}
	return nil
}

// ownShare returns this Locker's own claim in the lock of h, or nil. It is called before the
// lock is broken: what the Locker holds afterwards may be a grant that followed, to a waiter
// of the same owner.
func (c *call) ownShare(h Holder) *claim {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	ks := c.s.keys[c.key]
	if ks == nil {
		return nil
	}
	if ks.current == nil {
		return ks.claim(h.ID)
	}
	if own := ks.current; own.ID == h.ID || own.Owner == h.Owner {
		return own
	}
	return nil
}

// wakeWaiters takes the key and gives it back, which wakes the waiters that a release of this strategy
// wakes. Those of other strategies, and all if it fails, find the key free within about a second.
func (c *call) wakeWaiters() {
	cl := c.newClaim()
	a, sent, err := c.acquire(cl, false, 0)
	if err != nil || !a.Granted {
		return
	}
	cl.ID, cl.Token = cmp.Or(a.Claim, cl.ID), a.Token
	err = c.command(commandTimeout, func(ctx context.Context) error { return c.e.driver.Release(ctx, cl) })
	if !isSettled(err) {
		c.e.cleanUp(cl, sent, true)
	}
}
