package redisdriver

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
)

var (
	acquirePermits = NewScript("acquire permits")

	acquirePermitsInCluster = NewScript("acquire permits", InCluster)

	renewPermits   = NewScript("renew permits")
	releasePermits = NewScript("release permits")
	countPermits   = NewScript("count permits")
	listPermits    = NewScript("list permits")
)

// PermitKeeper is a [driver.PermitKeeper] and [driver.PermitInspector] for the strategies that keep permits. They
// embed it beside the Driver, which does the rest.
type PermitKeeper struct{ of *Driver }

// NewPermitKeeper makes the PermitKeeper of d.
func NewPermitKeeper(d *Driver) PermitKeeper { return PermitKeeper{d} }

// Permits implements [driver.PermitKeeper]: one round trip, and one for each further few hundred claims that have ended.
func (k PermitKeeper) Permits(ctx context.Context, key string) (out, limit int, err error) {
	for {
		r, err := k.ask(ctx, countPermits, key)
		switch {
		case err != nil:
			return 0, 0, err
		case len(r) == 2 && r[0] == int64(-1):
			return 0, 0, fmt.Errorf("%w: the key is held as a lock, or is none: it is a %v", locker.ErrConflict, r[1])
		case len(r) != 3:
			return 0, 0, unexpected(r)
		case r[2] == int64(0):
			return int(number(r[0])), int(number(r[1])), nil
		}
	}
}

// PermitClaims implements [driver.PermitInspector]: one round trip for about a hundred claims.
func (k PermitKeeper) PermitClaims(ctx context.Context, key string) iter.Seq2[driver.Holder, error] {
	return func(yield func(driver.Holder, error) bool) {
		for cursor := "0"; ; {
			r, err := k.ask(ctx, listPermits, key, cursor)
			if err == nil && (len(r) < 3 || len(r)%3 != 0) {
				err = unexpected(r)
			}
			if err != nil {
				yield(driver.Holder{}, err)
				return
			}
			for i := 3; i < len(r); i += 3 {
				h, alive := permitHolder(key, r[i:], number(r[1]), number(r[2]))
				if alive && !yield(h, nil) {
					return
				}
			}
			if cursor = fmt.Sprint(r[0]); cursor == "0" {
				return
			}
		}
	}
}

// permitHolder reads a claim in the reply of listpermits.lua, and reports whether it has not ended.
func permitHolder(key string, r []any, limit, now int64) (h driver.Holder, alive bool) {
	id, _ := r[0].(string)
	value, _ := r[1].(string)
	words := strings.SplitN(value, " ", 3)
	if len(words) < 2 || number(r[2]) <= now {
		return h, false
	}
	h = driver.Holder{Key: key, Held: true, ID: id, Owner: id, Strategy: "permits", Limit: int(limit),
		Remaining: time.Duration(number(r[2])-now) * time.Millisecond, Metadata: driver.MetadataOf(id)}
	h.Permits, _ = strconv.Atoi(words[0])
	if h.Token, _ = strconv.ParseInt(words[1], 10, 64); h.Token > 0 {
		h.Since = time.UnixMicro(h.Token)
	}
	if len(words) == 3 {
		h.Owner = words[2]
	}
	return h, true
}

// ask runs a script about the permits of key, whose reply is an array.
func (k PermitKeeper) ask(ctx context.Context, s *redisconn.Script, key string, args ...any) ([]any, error) {
	c := k.of.command(s, driver.Request{Claim: driver.Claim{Key: key}}, args...)
	reply, err := k.of.conn.Do(ctx, &c.Command)
	c.free()
	if err != nil {
		return nil, storeError(err)
	}
	r, ok := reply.([]any)
	if !ok {
		return nil, unexpected(reply)
	}
	return r, nil
}

// permitsAnswer reads the reply of acquirepermits.lua.
func permitsAnswer(reply any, tokens int) (driver.Answer, error) {
	r, _ := reply.([]any)
	if len(r) == 0 || r[0] == int64(-1) {
		return answerOf(reply, tokens)
	}
	common := 3
	if r[0] == int64(1) {
		common = len(r) - 2 // with how many tokens there are, or without
	}
	if common < 2 || len(r) < common+2 {
		return driver.Answer{}, unexpected(reply)
	}
	a, err := answerOf(r[:common], tokens)
	rest := r[common:] // free, limit before, whether it bids
	a.Free, a.Limit = int(number(rest[0])), int(number(rest[1]))
	a.Bids = len(rest) > 2 && rest[2] == int64(1)
	return a, err
}
