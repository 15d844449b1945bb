package driver

import (
	"context"
	"iter"
	"time"
)

// PermitKeeper is implemented by a driver that keeps keys with permits. Such a key has a limit, and
// claims that take one permit or more each. A Request with a Limit is granted if the permits
// that are out, and those that it asks for, are at most its Limit. Permits are out until their claim
// is released or has ended.
//
//   - Each Request is judged by its own Limit, and the newest one stands in the store: permits that
//     are out stay out when the limit shrinks.
//   - A key is a lock or has permits. A Request of the other kind is refused until the key is free, and
//     so is a Request for the key of another program's lock.
//   - Each claim has an expiry of its own, moved by its own renewals, and a token of its own. The
//     token is greater than that of each claim that had ended before the grant. Renew, Release and a
//     Request that is sent twice are as for locks: sent twice, a claim counts once.
//   - Nobody joins a claim. The owner's name is kept for those who look.
//   - A release signals the Watches of the key.
//   - A grant should cost the same whatever number of permits is out. (In strategy/etcd it reads all claims of the key.)
//
// A Request that Waits is not starved. While the Request that has Waited longest is repeated, the driver keeps the
// permits that it asks for free, and refuses them to Requests that have waited for less. A lock counts as a Request
// for all permits. A driver need not do this for a Request for one permit that has waited for less than [Patience].
// Permits that are kept free for a waiter that falls silent are given to others after at most [BidTime]. They are given
// to others at once if the waiter's claim for permits is released. That Release signals the Watches, and returns an
// error that matches [ErrLost], as the claim has no permits. The Release of a claim for a lock does not end what is
// kept free: after a Lock that has given up, permits may be refused for BidTime. So Answer.Bids is false for a
// lock.
type PermitKeeper interface {
	// Permits returns how many permits of key are out, and the limit that was named last: 0 and 0
	// if the key is free. It returns an error that matches [ErrConflict] if the key is held as a
	// lock.
	Permits(ctx context.Context, key string) (out, limit int, err error)
}

const (
	// BidTime is for how long a driver keeps permits free for a waiter that is silent.
	BidTime = 2 * time.Second
	// Patience is for how long others may pass a waiter that asks for one permit.
	Patience = time.Second
	// MaxPermits is the largest Limit.
	MaxPermits = 1_000_000_000
)

// PermitInspector is implemented by an [Inspector] that is a [PermitKeeper].
type PermitInspector interface {
	// PermitClaims goes through the claims that have permits of key and have not ended, in no
	// order. Each has ID, Owner, Permits, Limit, Token and Remaining. A claim that comes or goes
	// meanwhile may be left out.
	PermitClaims(ctx context.Context, key string) iter.Seq2[Holder, error]
}
