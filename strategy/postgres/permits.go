package postgres

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/jackc/pgx/v5"
)

var _ interface {
	driver.Driver
	driver.PermitKeeper
	driver.PermitInspector
} = (*pgDriver)(nil)

// acquirePermits is Acquire for permits: one statement, and one more where the key has no room against
// expectation, or where the statement cannot judge.
func (d *pgDriver) acquirePermits(ctx context.Context, req driver.Request) (a driver.Answer, err error) {
	found := false
	if req.Permits == 1 && d.freed.take(req.Key) {
		a, found, err = d.acquireAgain(ctx, req)
	}
	if !found && err == nil {
		a, err = d.judgePermits(ctx, req)
	}
	if err == nil && a.Granted && a.Free > 0 {
		d.freed.note(req.Key)
	}
	return a, err
}

// acquireAgain asks for a permit of a key that is likely to have room. It reports whether that is answered.
func (d *pgDriver) acquireAgain(ctx context.Context, req driver.Request) (a driver.Answer, found bool, err error) {
	var first, last int64
	n, err := d.each(ctx, d.sql.permits.again, func(rows pgx.Rows) error {
		a.Granted = true
		return rows.Scan(&first, &last, &a.Free)
	}, append(acquireArgs(req), req.Permits, req.Limit)...)
	switch {
	case hasCode(err, lockNotAvailable):
		return driver.Answer{NoWakeUp: d.deaf.Load()}, true, nil
	case err != nil || n == 0:
		return driver.Answer{}, false, err
	case first > 0:
		a.Token, a.Tokens = first, int(last-first+1)
	}
	return a, true, nil
}

// judgePermits grants permits or returns why not.
func (d *pgDriver) judgePermits(ctx context.Context, req driver.Request) (a driver.Answer, err error) {
	args := append(acquireArgs(req), req.Permits, req.Limit, waited(req))
	for try := 1; ; try++ {
		var first, last, remaining int64
		var owner unhex
		var stale bool
		n, err := d.each(ctx, d.sql.permits.acquire, func(rows pgx.Rows) error {
			other := a.Limit // when the statement was sent before, which has set the limit
			err := rows.Scan(&a.Granted, &first, &last, &remaining, &owner, &a.Free, &a.Limit, &a.Bids, &stale)
			a.Limit = cmp.Or(a.Limit, other)
			return err
		}, args...)
		switch {
		case hasCode(err, lockNotAvailable):
			return driver.Answer{NoWakeUp: d.deaf.Load()}, nil
		case err != nil:
			return driver.Answer{}, err
		case n == 0 && try < mostTries && ctx.Err() == nil:
			continue
		case n == 0:
			return driver.Answer{}, errOvertaken
		case remaining == hasMore:
			try = 0
			continue
		case a.Granted:
			if first > 0 {
				a.Token, a.Tokens = first, int(last-first+1)
			}
			return a, nil
		case stale:
			granted, token, err := d.extendPermits(ctx, req.Claim)
			if granted || err != nil {
				return driver.Answer{Granted: granted, Token: token, Free: a.Free, Limit: a.Limit}, err
			}
		}
		a.Remaining, a.Owner = time.Duration(remaining)*time.Millisecond, string(owner)
		a.NoWakeUp = d.deaf.Load()
		return a, nil
	}
}

// hasMore is the rest of the time where a statement has forgotten as many ended claims as it may, and there may be
// more. It is sent again: a key that nobody has is not refused.
const hasMore = -1

// lockInstead is Acquire for a lock, at a key that has permits. It reports whether it had some still.
func (d *pgDriver) lockInstead(ctx context.Context, req driver.Request) (a driver.Answer, found bool, err error) {
	var first, last, remaining int64
	n := 1
	for again := true; again; again = err == nil && n > 0 && remaining == hasMore {
		n, err = d.each(ctx, d.sql.permits.lock, func(rows pgx.Rows) error {
			return rows.Scan(&a.Granted, &first, &last, &remaining)
		}, append(acquireArgs(req), waited(req))...)
	}
	switch {
	case hasCode(err, lockNotAvailable):
		return driver.Answer{NoWakeUp: d.deaf.Load()}, true, nil
	case err != nil || n == 0:
		return driver.Answer{}, false, err
	case a.Granted && first > 0:
		a.Token, a.Tokens = first, int(last-first+1)
	case !a.Granted:
		a.Remaining, a.NoWakeUp = time.Duration(remaining)*time.Millisecond, d.deaf.Load()
	}
	return a, true, nil
}

// waited is for how long the caller has waited, in milliseconds; -1 if it does not wait.
func waited(req driver.Request) int64 {
	if !req.Waits {
		return -1
	}
	return req.Waited.Milliseconds()
}

// extendPermits renews a claim of permits alone. It reports whether the claim has them, and its token.
func (d *pgDriver) extendPermits(ctx context.Context, c driver.Claim) (held bool, token int64, err error) {
	n, err := d.each(ctx, d.sql.permits.extend, func(rows pgx.Rows) error {
		return rows.Scan(new(int), &held, &token)
	}, [][]byte{[]byte(c.Key)}, [][]byte{[]byte(c.ID)}, []int64{c.TTL.Milliseconds()}, []int64{forgetAfter(c.TTL)})
	if err == nil && n == 1 && !held {
		err = errBusy
	}
	return held, token, err
}

func (d *pgDriver) releasePermits(ctx context.Context, c driver.Claim) error {
	sql := d.sql.permits.free
	if d.releases.Add(1)%sweepEvery == 1 {
		sql = d.sql.permits.release
	}
	gave := false
	run := func(sql string) error {
		return untilKept(ctx, func() error {
			gave = false
			_, err := d.each(ctx, sql, func(rows pgx.Rows) error { return rows.Scan(&gave, nil, nil) },
				[]byte(c.Key), []byte(c.ID), c.TTL > 0 && c.TTL <= mostForgotten)
			return err
		})
	}
	err := run(sql)
	if hasCode(err, limitExceeded) {
		err = run(d.sql.permits.quietly)
	}
	switch {
	case err != nil:
		return err
	case !gave:
		return errLost
	}
	d.freed.note(c.Key)
	return nil
}

// Permits implements driver.PermitKeeper: one statement.
func (d *pgDriver) Permits(ctx context.Context, key string) (out, limit int, err error) {
	h, locked, err := d.countPermits(ctx, key)
	if locked {
		return 0, 0, fmt.Errorf("%w: the key is held as a lock", driver.ErrConflict)
	}
	return h.Permits, h.Limit, err
}

// countPermits returns the holder of a key with permits. If a lock has the key it reports so.
func (d *pgDriver) countPermits(ctx context.Context, key string) (h driver.Holder, locked bool, err error) {
	h.Key = key
	var since, left int64
	n, err := d.each(ctx, d.sql.permits.count, func(rows pgx.Rows) error {
		return rows.Scan(&h.Limit, &h.Permits, &since, &h.Token, &left, &locked)
	}, []byte(key))
	if err != nil || n == 0 || locked {
		return driver.Holder{Key: key}, locked, err
	}
	if h.Held = h.Permits > 0; h.Held {
		h.Strategy, h.Since, h.Remaining = d.Name(), time.UnixMicro(since), time.Duration(max(left, 0))*time.Millisecond
	}
	return h, false, nil
}

// PermitClaims implements driver.PermitInspector: one statement for ten thousand claims.
func (d *pgDriver) PermitClaims(ctx context.Context, key string) iter.Seq2[driver.Holder, error] {
	const page = 10_000
	return func(yield func(driver.Holder, error) bool) {
		for last, n := "", page; n == page; {
			var all []driver.Holder
			var err error
			n, err = d.each(ctx, d.sql.permits.list, func(rows pgx.Rows) error {
				h := driver.Holder{Key: key, Held: true, Strategy: d.Name()}
				var id, owner unhex
				var since, left int64
				err := rows.Scan(&id, &owner, &h.Permits, &h.Limit, &h.Token, &since, &left)
				h.ID, h.Owner, h.Metadata = string(id), string(owner), driver.MetadataOf(string(id))
				h.Since, h.Remaining = time.UnixMicro(since), time.Duration(left)*time.Millisecond
				all, last = append(all, h), h.ID
				return err
			}, []byte(key), []byte(last), page)
			if err != nil {
				yield(driver.Holder{}, err)
				return
			}
			for _, h := range all {
				if !yield(h, nil) {
					return
				}
			}
		}
	}
}
