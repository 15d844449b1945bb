package postgres

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/glob"
	"github.com/jackc/pgx/v5"
)

// Inspect implements driver.Inspector. An application's row lock is a holder without an ID,
// unless the row itself is new in that transaction. Of a key with permits it takes a second statement.
func (d *pgDriver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	h := driver.Holder{Key: key}
	var id, owner unhex
	var since, left int64
	held, err := d.each(ctx, d.sql.inspect, func(rows pgx.Rows) error {
		return rows.Scan(&id, &owner, &h.Token, &since, &left)
	}, []byte(key))
	if err != nil || held == 0 {
		return driver.Holder{Key: key}, err
	}
	if len(id) == 0 {
		return driver.Holder{Key: key, Held: true, Token: h.Token, Remaining: -1}, nil
	}
	if strings.HasPrefix(string(id), "permits ") {
		h, _, err := d.countPermits(ctx, key) // a lock since then: the key was free in between
		return h, err
	}
	h.Held, h.ID, h.Owner, h.Strategy = true, string(id), string(owner), d.Name()
	h.Since, h.Remaining, h.Metadata = time.UnixMicro(since), time.Duration(left)*time.Millisecond, driver.MetadataOf(h.ID)
	return h, nil
}

// Keys implements driver.Inspector. It reads a page at a time, and has no connection
// while the caller has a key.
func (d *pgDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	const page = 1000
	return glob.Keys(pattern, func(from string, add func(string)) (string, error) {
		last := unhex(from)
		n, err := d.each(ctx, d.sql.keys, func(rows pgx.Rows) error {
			var key unhex
			err := rows.Scan(&last, &key)
			add(string(key))
			return err
		}, []byte(from), page)
		if n < page {
			return "", err
		}
		return string(last), err
	})
}

// Break implements driver.Inspector. A claim's id is used once, so that this is a release.
func (d *pgDriver) Break(ctx context.Context, h driver.Holder) error {
	if h.Limit > 0 {
		return d.releasePermits(ctx, driver.Claim{Key: h.Key, ID: h.ID})
	}
	return d.release(ctx, d.sql.release, h.Key, h.ID)
}
