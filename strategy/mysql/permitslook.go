package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
)

// Permits implements driver.PermitKeeper: one statement.
func (d *mysqlDriver) Permits(ctx context.Context, key string) (out, limit int, err error) {
	h, locked, err := d.countPermits(ctx, key)
	if locked {
		return 0, 0, fmt.Errorf("%w: the key is held as a lock", driver.ErrConflict)
	}
	return h.Permits, h.Limit, err
}

// countPermits returns the holder of a key with permits. If a lock has the key it reports so.
func (d *mysqlDriver) countPermits(ctx context.Context, key string) (h driver.Holder, locked bool, err error) {
	h.Key = key
	var of head
	var token, gone, left int64
	var live bool
	err = d.do(ctx, d.others, func(conn *sql.Conn) error {
		_, err := rows(ctx, conn, fmt.Sprintf(d.sql.permits.count, hashOf(key)), func(scan scanner) error {
			var id string
			if err := scan(&id, &of.era, &token, &live, &gone, &left); err != nil || !live {
				return err
			}
			of.expires = 1 // later than at
			return of.read(id, "")
		})
		return err
	})
	if err != nil || !of.live {
		return h, of.locked, err
	}
	h.Limit, h.Permits = of.limit, of.out-int(gone)
	if h.Held = h.Permits > 0; h.Held {
		h.Strategy, h.Since, h.Token, h.Remaining = d.Name(), time.UnixMicro(of.era), token, time.Duration(max(left, 0))*time.Millisecond
	}
	return h, false, nil
}

// PermitClaims implements driver.PermitInspector: one statement for ten thousand claims.
func (d *mysqlDriver) PermitClaims(ctx context.Context, key string) iter.Seq2[driver.Holder, error] {
	const page = 10_000
	return func(yield func(driver.Holder, error) bool) {
		for last, n := []byte(nil), page; n == page; {
			var all []driver.Holder
			err := d.do(ctx, d.others, func(conn *sql.Conn) (err error) {
				n, err = rows(ctx, conn, fmt.Sprintf(d.sql.permits.list, hashOf(key), last, page), func(scan scanner) error {
					h := driver.Holder{Key: key, Held: true, Strategy: d.Name()}
					var since, left int64
					err := scan(&last, &h.ID, &h.Owner, &h.Permits, &h.Limit, &h.Token, &since, &left)
					h.Metadata, h.Since, h.Remaining = driver.MetadataOf(h.ID), time.UnixMicro(since), time.Duration(left)*time.Millisecond
					all = append(all, h)
					return err
				})
				return err
			})
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

// without returns the keys, without those that keep permits of which none is out.
func (d *mysqlDriver) without(ctx context.Context, conn *sql.Conn, keys, ofPermits []string) ([]string, error) {
	if len(ofPermits) == 0 {
		return keys, nil
	}
	hashes := make([]string, len(ofPermits))
	for i, key := range ofPermits {
		hashes[i] = fmt.Sprintf("x'%x'", hashOf(key))
	}
	out := make(map[string]bool)
	_, err := rows(ctx, conn, fmt.Sprintf(d.sql.permits.out, strings.Join(hashes, ", ")), func(scan scanner) error {
		var hash []byte
		err := scan(&hash)
		out[string(hash)] = true
		return err
	})
	return slices.DeleteFunc(keys, func(key string) bool {
		return slices.Contains(ofPermits, key) && !out[string(hashOf(key))]
	}), err
}
