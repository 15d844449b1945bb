package mysql

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
)

// head describes a key that a look saw at the server's time at. All times are in microseconds of its clock.
type head struct {
	live, locked        bool // see sql/permits.sql
	limit, out, earlier int
	era, expires, at    int64
	bidsFor             int
	bidSince, bidHeard  int64
	bidOf, bidClaim     string
	firstEnd            sql.NullInt64 // of its claims
	own                 bool          // the claim of the request counts
}

// look reads the row of the key and its first claim. It locks nothing.
func (r *asking) look() (h head, err error) {
	var id, owner string
	set := true
	_, err = rows(r.ctx, r.conn, fmt.Sprintf(r.sql.permits.look, r.hash, r.claim), func(scan scanner) error {
		if err := scan(&id, &owner, &h.era, &h.expires, &h.at, &h.firstEnd, &h.own, &set); err != nil {
			return err
		}
		return h.read(id, owner)
	})
	if err == nil && !set {
		hangUp(r.conn)
		err = errManual
	}
	return h, err
}

// read reads the id and owner of a row.
func (h *head) read(id, owner string) error {
	if h.expires <= h.at {
		return nil
	}
	if !strings.HasPrefix(id, permitsWord) {
		h.locked = id != ""
		return nil
	}
	h.live = true
	if _, err := fmt.Sscanf(id, permitsWord+"%d %d %d", &h.limit, &h.out, &h.earlier); err != nil {
		return fmt.Errorf("the id in the key's row is damaged: want %sLIMIT OUT EARLIER: %w", permitsWord, err)
	}
	if owner == "" {
		return nil
	}
	if _, err := fmt.Sscanf(owner, "%d %d %d %s %s", &h.bidsFor, &h.bidSince, &h.bidHeard, &h.bidOf, &h.bidClaim); err != nil {
		return fmt.Errorf("the bid in the key's row is damaged: want COUNT SINCE HEARD LOCKER CLAIM: %w", err)
	}
	return nil
}

// bidLeft is for how long permits are kept free for who bids.
func (h *head) bidLeft() time.Duration {
	left := micros(h.bidHeard-h.at) + driver.BidTime
	if h.bidOf == "" || left > driver.BidTime {
		return 0
	}
	return max(left, 0)
}

// ended reports whether the permits of a claim that has ended still count.
func (h *head) ended() bool { return h.live && h.firstEnd.Valid && h.firstEnd.Int64 <= h.at }

// refuses reports whether the request would be refused without a change to the key, so that it need not be
// judged under the head's lock. A bid is to be noted anew when half of its time is over.
func (h *head) refuses(r *asking) bool {
	ahead, left := h.ahead(r), h.bidLeft()
	mine := left > driver.BidTime/2 && h.bidOf == fmt.Sprintf("%x", lockerOf(r.req.ID)) && h.bidClaim == fmt.Sprintf("%x", short(r.claim)) && h.bidsFor == r.req.Permits
	switch {
	case h.locked:
		return true
	case !h.live, h.own, h.ended(), h.limit != r.req.Limit, h.out+r.req.Permits+ahead <= r.req.Limit:
		return false
	}
	return mine || ahead > 0 || !r.mayBid()
}

// ahead is how many permits are kept free for a Locker that has waited for longer.
func (h *head) ahead(r *asking) int {
	if h.bidLeft() > 0 && h.bidOf != fmt.Sprintf("%x", lockerOf(r.req.ID)) && h.bidSince <= h.at-r.waited() {
		return h.bidsFor
	}
	return 0
}

// refusal returns the answer by what the look saw.
func (h *head) refusal(r *asking) (a driver.Answer) {
	switch {
	case h.locked:
		a.Remaining = ms(micros(h.expires - h.at))
	case h.live:
		ahead := h.ahead(r)
		if h.firstEnd.Valid {
			a.Remaining = ms(micros(h.firstEnd.Int64 - h.at))
		}
		if ahead > 0 && h.out+r.req.Permits <= r.req.Limit && (a.Remaining == 0 || h.bidLeft() < a.Remaining) {
			a.Remaining = ms(h.bidLeft())
		}
		a.Free = max(r.req.Limit-h.out-ahead, 0)
		a.Bids = ahead == 0 && r.mayBid()
	}
	return a
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// ms rounds up to milliseconds, and to one at least: 0 would mean that it is unknown.
func ms(d time.Duration) time.Duration {
	return max((d + time.Millisecond - 1).Truncate(time.Millisecond), time.Millisecond)
}
