package locker

import "context"

// An RWLock without permits makes its callers wait at a gate: a lock on the key with this suffix.
const gateSuffix = ":gate"

// clientOf returns the Client of l, if key and its gate may be locked.
func clientOf(who string, l Locker, key string) (*Client, error) {
	e, ok := ClientOf(l)
	if !ok {
		return nil, invalid("%s needs a Locker as New returns it, or one that wraps it and has Unwrap; not a %T", who, l)
	}
	if err := checkKey(key, e.set.prefix+key); err != nil {
		return nil, err
	}
	return e, checkKey(key, e.set.prefix+key+gateSuffix)
}

// enterGate locks the gate before key.
func enterGate(ctx context.Context, l Locker, key string, wait waitBudget) (*Lease, error) {
	return l.Lock(bareCtx{ctx}, key+gateSuffix, append(wait.rest(nil), WithRenewal(), WithUnlimitedHold())...)
}

// bareCtx has no leases to be re-entered, and names no owner.
type bareCtx struct{ context.Context }

func (c bareCtx) Value(key any) any {
	switch key.(type) {
	case innermost, contextOf, carried, ownerKey, readsKey:
		return nil
	}
	return c.Context.Value(key)
}
