package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
)

var _ interface {
	driver.Driver
	driver.PermitKeeper
	driver.PermitInspector
} = (*mysqlDriver)(nil)

const (
	// permitsWord begins the id of a key that has permits: see sql/permits.sql.
	permitsWord = "permits "

	// These make one number of the answer to a request for permits: see sql/acquirepermits.sql.
	refused = 1 << 60
	differs = 1 << 58
	own     = 1 << 57 // of a grant
	bids    = 1 << 57 // of a refusal
	locked  = 1 << 56
	inUse   = 1

	// mostEnded is how many claims that have ended one statement forgets at most.
	mostEnded = 300
)

// errOvertaken: other processes have changed the rows between the statements of an attempt, each time.
var errOvertaken = &driver.StoreError{Err: errors.New("the rows of the key were changed meanwhile"), NotApplied: true}

// asking is an attempt that is under way, on one connection.
type asking struct {
	*mysqlDriver
	ctx    context.Context
	conn   *sql.Conn
	req    driver.Request
	hash   []byte
	claim  []byte // the hash of its id
	tokens int
}

func (d *mysqlDriver) asking(ctx context.Context, conn *sql.Conn, req driver.Request) *asking {
	tokens := 0
	if req.Fencing {
		tokens = min(max(req.Tokens, 1), driver.TokensAhead)
	}
	return &asking{d, ctx, conn, req, hashOf(req.Key), hashOf(req.ID), tokens}
}

// short returns the part of a hash that a bid has of it.
func short(hash []byte) []byte { return hash[:16] }

// lockerOf returns the short hash of the Locker of a claim.
func lockerOf(id string) []byte {
	name, _, _ := strings.Cut(id, ":")
	hash := sha256.Sum256([]byte(name))
	return short(hash[:])
}

func (r *asking) waited() int64 {
	if !r.req.Waits {
		return 0
	}
	return max(r.req.Waited, 0).Microseconds()
}

// mayBid reports whether permits are kept free for the request if nobody has waited for longer.
func (r *asking) mayBid() bool {
	return r.req.Waits && (r.req.Permits != 1 || r.req.Waited >= driver.Patience)
}

func (r *asking) ttl() int64 { return r.req.TTL.Microseconds() }

// send sends a statement, and returns its LAST_INSERT_ID.
func (r *asking) send(stmt string) (int64, error) {
	n, _, err := send(r.ctx, r.conn, stmt)
	return n, err
}

// acquirePermits is Acquire for permits.
func (d *mysqlDriver) acquirePermits(ctx context.Context, req driver.Request) (a driver.Answer, err error) {
	err = d.do(ctx, d.attempts, func(conn *sql.Conn) (err error) {
		a, err = d.asking(ctx, conn, req).permits()
		return err
	})
	switch {
	case err != nil:
	case a.Granted:
		d.refusals.drop(hashOf(req.Key))
	default:
		d.refusals.note(hashOf(req.Key))
	}
	return a, err
}

// quickly asks for permits that are free, unless the last request was refused, and then looks: most of those that are
// refused once are refused again. If neither decides it returns the row for a request that is judged.
//
// A look is as good as a judgement: it sees the key as it was at some time after the call began, with what all
// commands did whose answers came before.
func (r *asking) quickly() (a driver.Answer, done bool, row []byte, err error) {
	if row = r.rows.take(r.hash); !r.refusals.last(r.hash) {
		if row == nil {
			if err := r.makeRow(); err != nil {
				return a, false, nil, err
			}
			row = r.claim
		}
		n, err := r.send(fmt.Sprintf(r.sql.permits.grant, r.hash, row, r.claim, r.req.ID, r.req.Owner, r.ttl(), forgetAfter(r.req.TTL),
			r.tokens, r.req.Permits, r.req.Limit))
		switch {
		case hasNumber(err, duplicate): // its first sending was granted them, with another row
			r.rows.put(r.hash, row)
			return a, false, r.claim, nil
		case err != nil:
			return a, false, nil, err
		case n >= granted:
			a, err = r.granted(n)
			return a, true, nil, err
		}
	}
	seen, err := r.look()
	switch refused := err == nil && seen.refuses(r); {
	case err != nil:
	case refused || seen.own:
		if row != nil && (refused || string(row) != string(r.claim)) {
			r.rows.put(r.hash, row)
		}
		return seen.refusal(r), refused, r.claim, nil
	case seen.ended():
		err = r.end(seen.era)
	case seen.era == 0: // the key has no row
		err = r.makeHead()
	}
	return a, false, row, err
}

// makeHead makes the row of the key if it is not there.
func (r *asking) makeHead() error {
	_, err := r.send(fmt.Sprintf(r.sql.lock, r.hash, r.req.Key))
	return err
}

// permits asks until the server has judged the request, with the rows that it needs. Between its
// statements nothing is held: each judges the newest versions anew.
func (r *asking) permits() (driver.Answer, error) {
	a, done, row, err := r.quickly()
	if done || err != nil {
		return a, err
	}
	for try := 1; try <= mostTries; try++ {
		if row == nil {
			if err := r.makeRow(); err != nil {
				return driver.Answer{}, err
			}
			row = r.claim
		}
		n, err := r.judge(row)
		switch {
		case hasNumber(err, duplicate): // its first sending was granted them, with another row
			r.rows.put(r.hash, row)
			row = r.claim
			continue
		case err != nil:
			return driver.Answer{}, err
		case n >= granted:
			return r.granted(n)
		case n < refused: // a row is not there, or is another claim's
			if string(row) == string(r.claim) {
				if err := r.makeHead(); err != nil {
					return driver.Answer{}, err
				}
			}
			row = nil
			continue
		}
		seen, err := r.look()
		switch {
		case err != nil:
			return driver.Answer{}, err
		case seen.own && string(row) != string(r.claim):
			r.rows.put(r.hash, row)
			row = r.claim
			continue
		case seen.ended() && n&locked == 0:
			if err := r.end(seen.era); err != nil {
				return driver.Answer{}, err
			}
			try = 0 // there are fewer each time: a key that nobody has is not refused
			continue
		}
		r.rows.put(r.hash, row)
		a := seen.refusal(r)
		a.Free, a.Bids = int(n%locked), n&bids > 0
		if n&differs > 0 {
			a.Limit = seen.earlier
		}
		return a, nil
	}
	return driver.Answer{}, errOvertaken
}

// judge asks for the permits with a row that may become the claim. See sql/acquirepermits.sql.
func (r *asking) judge(row []byte) (int64, error) {
	return r.send(fmt.Sprintf(r.sql.permits.acquire, r.hash, row, r.claim, r.req.ID, r.req.Owner, r.ttl(), forgetAfter(r.req.TTL),
		r.tokens, r.req.Permits, r.req.Limit, r.waited(), r.mayBid(), lockerOf(r.req.ID), short(r.claim)))
}

// makeRow makes a row for the claim, and some for those that follow it.
func (r *asking) makeRow() error {
	values := fmt.Sprintf("(x'%x', x'%x', %s + %d)", r.hash, r.claim, now, spareKept.Microseconds())
	_, err := r.send(fmt.Sprintf(r.sql.permits.row, values))
	return err
}

// granted reads a grant.
func (r *asking) granted(n int64) (driver.Answer, error) {
	a := driver.Answer{Granted: true, Token: n % block, Free: int(n/block%16) * r.req.Permits}
	if r.tokens == 0 {
		a.Token = 0
	} else if n&own == 0 {
		a.Tokens = r.tokens
	}
	if n&differs > 0 { // it is a warning: a grant stays one without it
		if seen, err := r.look(); err == nil {
			a.Limit = seen.earlier
		}
	}
	return a, nil
}

// end forgets claims that have ended.
func (r *asking) end(era int64) error {
	var claims []string
	_, err := rows(r.ctx, r.conn, fmt.Sprintf(r.sql.permits.ended, r.hash, era), func(scan scanner) error {
		var claim []byte
		err := scan(&claim)
		claims = append(claims, fmt.Sprintf("x'%x'", claim))
		return err
	})
	if err != nil || len(claims) == 0 {
		return err
	}
	_, err = r.send(fmt.Sprintf(r.sql.permits.end, r.hash, era, strings.Join(claims, ", ")))
	return err
}

// lockInstead is Acquire for a lock, at a key that has permits. It reports whether it had some still.
func (r *asking) lockInstead() (a driver.Answer, had bool, err error) {
	for try := 1; try <= mostTries; try++ {
		seen, err := r.look()
		if err != nil {
			return a, true, err
		}
		if seen.ended() {
			if err := r.end(seen.era); err != nil {
				return a, true, err
			}
			try = 0 // there are fewer each time
		}
		n, err := r.send(fmt.Sprintf(r.sql.permits.lock, r.hash, r.req.ID, r.req.Owner, r.ttl(), forgetAfter(r.req.TTL), r.tokens,
			r.waited(), r.mayBid(), lockerOf(r.req.ID), short(r.claim)))
		switch {
		case err != nil || n == 0:
			return a, n != 0, err
		case n >= granted:
			return driver.Answer{Granted: true, Token: (n - granted) % block, Tokens: int((n - granted) / block)}, true, nil
		case !seen.ended():
			a = seen.refusal(r)
			a.Bids = false // the Release of a lock ends no bid
			return a, true, nil
		}
	}
	return a, true, errOvertaken
}

// forgetAfter returns after how many microseconds a row is no longer needed, if its lease is not renewed. The head of
// permits lasts for as long.
func forgetAfter(ttl time.Duration) int64 { return (ttl + max(2*ttl, keep)).Microseconds() }
