package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/glob"
)

// Inspect implements driver.Inspector.
func (d *mysqlDriver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	h := driver.Holder{Key: key}
	var since, left int64
	err := d.do(ctx, d.others, func(conn *sql.Conn) error {
		n, err := rows(ctx, conn, fmt.Sprintf(d.sql.inspect, hashOf(key)), func(scan scanner) error {
			return scan(&h.ID, &h.Owner, &h.Token, &since, &left)
		})
		h.Held = n > 0
		return err
	})
	if err != nil || !h.Held {
		return driver.Holder{Key: key}, err
	}
	if strings.HasPrefix(h.ID, permitsWord) {
		h, _, err := d.countPermits(ctx, key) // a lock since then: the key was free in between
		return h, err
	}
	h.Strategy, h.Since, h.Remaining, h.Metadata = d.Name(), time.UnixMicro(since), time.Duration(left)*time.Millisecond, driver.MetadataOf(h.ID)
	return h, nil
}

// Keys implements driver.Inspector. It reads a page at a time, and has no connection
// while the caller has a key.
func (d *mysqlDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	const page = 1000
	return glob.Keys(pattern, func(from string, add func(string)) (string, error) {
		last, n := []byte(from), 0
		var keys, ofPermits []string
		err := d.do(ctx, d.others, func(conn *sql.Conn) (err error) {
			n, err = rows(ctx, conn, fmt.Sprintf(d.sql.keys, last, page), func(scan scanner) error {
				var key string
				var permits bool
				err := scan(&last, &key, &permits)
				keys = append(keys, key)
				if permits {
					ofPermits = append(ofPermits, key)
				}
				return err
			})
			if err == nil {
				keys, err = d.without(ctx, conn, keys, ofPermits)
			}
			return err
		})
		for _, key := range keys {
			add(key)
		}
		if n < page {
			return "", err
		}
		return string(last), err
	})
}

// Break implements driver.Inspector. A claim's id is used once, so that this is a release.
func (d *mysqlDriver) Break(ctx context.Context, h driver.Holder) error {
	return d.Release(ctx, driver.Claim{Key: h.Key, ID: h.ID, Limit: h.Limit})
}
