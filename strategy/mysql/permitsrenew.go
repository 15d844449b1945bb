package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
)

// lasting describes a renewed claim of permits, as the table has it.
type lasting struct {
	hash []byte
	left time.Duration
	era  int64
	head bool // lasts as long
}

// renewPermits renews claims of permits: one statement for their rows, and one that looks whether their eras go on.
// An answer is nil only once the head lasts as long as the claim: a head that would end before it is made to last
// by another statement. Sent twice, or late, they find the claim, which has as much time as it had or more, or its
// end. If the process stops between them, the claim may last longer than its head: its holder does not count on that
// time, and who takes the key then makes the claim void.
func (d *mysqlDriver) renewPermits(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	outcome := make([]error, len(claims))
	err := d.do(ctx, d.others, func(conn *sql.Conn) error { return d.renewRows(ctx, conn, claims, outcome) })
	for i := range claims {
		if err != nil {
			outcome[i] = err
		}
		answer(i, outcome[i])
	}
}

func (d *mysqlDriver) renewRows(ctx context.Context, conn *sql.Conn, claims []driver.Claim, outcome []error) error {
	pairs := make([]string, len(claims))
	for i, c := range claims {
		pairs[i] = fmt.Sprintf("(p.hash = x'%x' AND p.claim = x'%x')", hashOf(c.Key), hashOf(c.ID))
	}
	these, sent := strings.Join(pairs, " OR "), time.Now()
	stmt := fmt.Sprintf(d.sql.permits.renew, these, len(claims))
	if len(claims) == 1 {
		stmt = fmt.Sprintf(d.sql.permits.extend, hashOf(claims[0].Key), hashOf(claims[0].ID))
	}
	if _, _, err := send(ctx, conn, stmt); err != nil {
		return err
	}
	found := make(map[string]lasting)
	_, err := rows(ctx, conn, fmt.Sprintf(d.sql.permits.held, these), func(scan scanner) error {
		var l lasting
		var claim []byte
		var left int64
		err := scan(&l.hash, &claim, &left, &l.era, &l.head)
		l.left = micros(left)
		found[string(l.hash)+string(claim)] = l
		return err
	})
	if err != nil {
		return err
	}
	took := time.Since(sent) + time.Millisecond // the two clocks may differ by a little meanwhile
	for i, c := range claims {
		l, held := found[string(hashOf(c.Key))+string(hashOf(c.ID))]
		switch {
		case !held:
			outcome[i] = errLost
		case l.left+took < c.TTL:
			outcome[i] = errBusy
		case !l.head:
			outcome[i] = d.lastHead(ctx, conn, l, c.TTL)
		}
	}
	return nil
}

// lastHead makes the head of an era last longer.
func (d *mysqlDriver) lastHead(ctx context.Context, conn *sql.Conn, l lasting, ttl time.Duration) error {
	lasts, _, err := send(ctx, conn, fmt.Sprintf(d.sql.permits.last, l.hash, l.era, forgetAfter(ttl)))
	if err == nil && lasts == 0 {
		return errLost
	}
	return storeError(err, false)
}

// releasePermits is Release for permits: one statement, and a second one where the limit is another one by now or there
// is a bid. A claim without a token may have only a bid.
func (d *mysqlDriver) releasePermits(ctx context.Context, c driver.Claim) error {
	hash, claim := hashOf(c.Key), hashOf(c.ID)
	return d.do(ctx, d.others, func(conn *sql.Conn) (err error) {
		r, n := d.asking(ctx, conn, driver.Request{Claim: c}), int64(0)
		if c.Token != 0 {
			n, err = r.send(fmt.Sprintf(d.sql.permits.give, hash, claim, c.Limit))
		}
		if n == 0 && err == nil {
			n, err = r.send(fmt.Sprintf(d.sql.permits.release, hash, claim, short(claim)))
		}
		if err != nil {
			return err
		}
		if n != 1 { // 0: a sending before this one, whose answer was lost, may have given them back
			d.rows.put(hash, claim)
		}
		if n < 2 {
			return errLost
		}
		d.sweep(ctx, conn)
		d.sweepPermits(ctx, conn)
		return nil
	})
}

// sweepPermits deletes rows of permits that nobody needs, at some of its calls.
func (d *mysqlDriver) sweepPermits(ctx context.Context, conn *sql.Conn) {
	if rand.IntN(sweepEvery) != 0 {
		return
	}
	var these []string
	_, err := rows(ctx, conn, d.sql.permits.old, func(scan scanner) error {
		var hash, claim []byte
		var era int64
		err := scan(&hash, &claim, &era)
		these = append(these, fmt.Sprintf("(hash = x'%x' AND claim = x'%x' AND era = %d)", hash, claim, era))
		return err
	})
	if err == nil && len(these) > 0 {
		_, _ = conn.ExecContext(ctx, fmt.Sprintf(d.sql.permits.drop, strings.Join(these, " OR ")))
	}
}
