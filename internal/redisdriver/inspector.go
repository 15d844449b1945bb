package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

var (
	inspectScript = NewScript("inspect")
	breakScript   = NewScript("break")
)

// Inspect implements [driver.Inspector]: one round trip. It knows the layouts of all
// strategies of this module, since they lock at the same key.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	c := d.command(inspectScript, driver.Request{Claim: driver.Claim{Key: key}, Fencing: true})
	if d.channels != nil {
		c.appendChannel(d)
	}
	reply, err := d.conn.Do(ctx, &c.Command)
	c.free()
	if err != nil {
		return driver.Holder{}, storeError(err)
	}
	return holderIn(key, reply)
}

// Break implements [driver.Inspector]: one round trip.
func (d *Driver) Break(ctx context.Context, h driver.Holder) error {
	if h.Strategy == redlocks && d.p.Name != redlocks {
		return fmt.Errorf("%w: this server is one of several that have the lock; redlock takes it from all of them", locker.ErrConflict)
	}
	return d.Run(ctx, breakScript, driver.Claim{Key: h.Key, ID: h.ID})
}

// Keys implements [driver.Inspector].
func (d *Driver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for key, err := range d.conn.Scan(ctx, pattern) {
			switch {
			case errors.Is(err, errors.ErrUnsupported):
				err = fmt.Errorf("%w: %w", locker.ErrInvalid, err)
			case err != nil:
				err = storeError(err)
			case strings.HasPrefix(key, "locker:"):
				continue
			}
			if !yield(key, err) {
				return
			}
		}
	}
}

// holderIn reads the reply of inspect.lua.
func holderIn(key string, reply any) (driver.Holder, error) {
	r, _ := reply.([]any)
	if len(r) != 7 {
		return driver.Holder{}, unexpected(reply)
	}
	kind, pttl := fmt.Sprint(r[0]), number(r[1])
	h := driver.Holder{Key: key, Held: kind != "none", Remaining: -1}
	if pttl >= 0 && pttl < math.MaxInt64/int64(time.Millisecond) {
		h.Remaining = time.Duration(pttl) * time.Millisecond
	}
	token, queue, now := number(r[3]), fieldsOf(r[4]), number(r[6])
	switch kind {
	case "none":
		h.Remaining = 0
	case "string":
		value, _ := r[2].(string)
		recognizeString(&h, value, token)
	case "hash":
		recognizeHash(&h, fieldsOf(r[2]), token, now/1000)
	default:
		return driver.Holder{}, fmt.Errorf("%w: it is a %s", locker.ErrConflict, kind)
	}
	// Tokens are the time of the grant, or a few more where several were reserved.
	if h.Token > 0 && h.Token <= now+100 {
		h.Since = time.UnixMicro(min(h.Token, now))
	}
	h.Metadata = driver.MetadataOf(h.ID)
	h.Queue = waitersIn(queue, now/1000)
	h.Waiting = len(h.Queue) + int(number(r[5]))
	return h, nil
}

var (
	oursPattern  = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-([48])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}:\d+(\?\S*)?$`)
	javasPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+$`)
	totalPattern = regexp.MustCompile(`^\d+$`)
	sharePattern = regexp.MustCompile(`^\d+ (\d+) (\d+)$`)
	morePattern  = regexp.MustCompile(`^([a-z]+) (\S+) `)
	placePattern = regexp.MustCompile(`(?s)^\d+ (\S+) \d+ (\d+) \d \d+ \d+ (.*)$`)
)

const (
	blpopSilent = 2000 // ms after which a process in blpop's queue is taken to be dead
	idsOfHashes = "8"  // the version of their UUIDs
	redissons   = "redisson"
	redlocks    = "redlock"
)

// recognizeString tells whose lock a string is: a claim of setnx, or of redlock on one of
// its nodes, or what any other program has set.
func recognizeString(h *driver.Holder, value string, token int64) {
	h.ID, h.Owner = value, value
	switch ours := oursPattern.FindStringSubmatch(value); {
	case ours == nil:
	case ours[1] == idsOfHashes:
		h.Strategy, h.Token = redlocks, token
	default:
		h.Strategy, h.Token = "setnx", token
	}
}

// recognizeHash tells whose lock a hash is; claim.lua has the layout.
func recognizeHash(h *driver.Holder, fields map[string]string, token, now int64) {
	owners, shares, issued := []string{}, 0, int64(0)
	for field, value := range fields {
		share := sharePattern.FindStringSubmatch(value)
		switch {
		case field == "":
		case totalPattern.MatchString(value):
			owners = append(owners, field)
		case share != nil && oursPattern.MatchString(field):
			shares++
			issued = max(issued, number(share[2]))
			// The same one at each look, if it is alive.
			if alive := number(share[1]) > now; alive && (h.ID == "" || field < h.ID) {
				h.ID = field
			}
		default:
			h.ID = ""
			return // application data, or another kind of lock
		}
	}
	if len(owners) != 1 {
		h.ID = ""
		return
	}
	h.Owner = owners[0]
	h.Holds, _ = strconv.Atoi(fields[h.Owner])
	if h.ID == "" {
		h.ID = h.Owner
	}
	ours, more := oursPattern.FindStringSubmatch(h.Owner), morePattern.FindStringSubmatch(fields[""])
	switch {
	case more != nil && more[1] == "blpop":
		h.Strategy = "blpop"
	case more != nil || shares > 0 || ours != nil && ours[1] == idsOfHashes:
		h.Strategy = "hashreentrant"
	case javasPattern.MatchString(h.Owner) && h.Remaining >= 0:
		h.Strategy = redissons
		return
	default:
		h.ID, h.Owner, h.Holds = "", "", 0
		return
	}
	switch {
	case issued > 0:
		h.Token = issued
	case more == nil || more[2] == "-":
		h.Token = token
	default:
		h.Token = number(more[2])
	}
}

// waitersIn names those in blpop's queue that are alive, the first one first; queue.lua
// has the layout. now is in ms.
func waitersIn(queue map[string]string, now int64) (all []string) {
	for inbox := queue[">"]; inbox != "" && len(all) < len(queue); inbox = queue[">"+inbox] {
		place := placePattern.FindStringSubmatch(queue[inbox])
		if place == nil || now-number(place[2]) >= blpopSilent {
			continue
		}
		if owner := place[3]; owner != "" {
			all = append(all, owner)
		} else {
			all = append(all, place[1])
		}
	}
	return all
}

func fieldsOf(reply any) map[string]string {
	flat, _ := reply.([]any)
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		fields[fmt.Sprint(flat[i])] = fmt.Sprint(flat[i+1])
	}
	return fields
}

// number is 0 for what is none.
func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}
