package postgres

import (
	"context"

	"github.com/distlock/locker/driver"
	"github.com/jackc/pgx/v5"
)

// Renew implements driver.Driver: a statement for locks, and one for permits. A lock that is alone waits for its row,
// which would hold up the others of a batch.
func (d *pgDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	if len(claims) == 1 && claims[0].Limit == 0 {
		c := claims[0]
		answer(0, d.one(ctx, d.sql.extend, []byte(c.Key), []byte(c.ID), c.TTL.Milliseconds(), forgetAfter(c.TTL)))
		return
	}
	var locks, permits []int
	for i, c := range claims {
		if c.Limit > 0 {
			permits = append(permits, i)
		} else {
			locks = append(locks, i)
		}
	}
	if len(locks) > 0 {
		d.renew(ctx, d.sql.renew, claims, locks, answer)
	}
	switch {
	case len(permits) == 1:
		d.renew(ctx, d.sql.permits.extend, claims, permits, answer)
	case len(permits) > 1:
		d.renew(ctx, d.sql.permits.renew, claims, permits, answer)
	}
}

// renew renews the claims of these numbers.
func (d *pgDriver) renew(ctx context.Context, sql string, claims []driver.Claim, these []int, answer func(i int, err error)) {
	keys, ids := make([][]byte, len(these)), make([][]byte, len(these))
	ttls, forget := make([]int64, len(these)), make([]int64, len(these))
	outcome := make([]error, len(these))
	for i, n := range these {
		c := claims[n]
		keys[i], ids[i], ttls[i], forget[i] = []byte(c.Key), []byte(c.ID), c.TTL.Milliseconds(), forgetAfter(c.TTL)
	}
	err := untilKept(ctx, func() error {
		for i := range outcome {
			outcome[i] = errLost
		}
		_, err := d.each(ctx, sql, func(rows pgx.Rows) error {
			var n int
			var renewed bool
			if err := rows.Scan(&n, &renewed, nil); err != nil {
				return err
			}
			outcome[n-1] = nil
			if !renewed {
				outcome[n-1] = errBusy
			}
			return nil
		}, keys, ids, ttls, forget)
		return err
	})
	for i, n := range these {
		if err != nil { // the statement is one transaction: also what was renewed may not be
			outcome[i] = err
		}
		answer(n, outcome[i])
	}
}
