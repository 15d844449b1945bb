package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
)

var (
	inspectScript, breakScript       = NewScript("inspect"), NewScript("break")
	inspectInCluster, breakInCluster = NewScript("inspect", InCluster), NewScript("break", InCluster) // they send no signals
)

// Layout recognises the locks of a strategy, or of another library. Strategies hand theirs to
// [NewDriver] in their [Protocol].
type Layout struct {
	Strategy string
	// Recognize reports whether the entry has the layout. If so, it sets ID, Owner, Holds and
	// Token of the holder.
	Recognize func(*Entry, *driver.Holder) bool
	// Queue returns the owners that wait in turn, the first one first; nil: there is no queue.
	Queue func(*Entry) []string
	// OnSeveralServers says that only the strategy itself may break the lock: the server is one
	// of several that have it.
	OnSeveralServers bool
}

// Entry is the content of a lock key, and what belongs to it.
type Entry struct {
	Kind    string            // string, hash
	Value   string            // of a string
	Fields  map[string]string // of a hash
	Queue   map[string]string // the fields of AuxKey("locker:queue:", key)
	Counter int64             // the fencing counter
	Now     time.Time         // by the server's clock
}

// Inspect implements [driver.Inspector]: one round trip.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	h, _, err := d.inspect(ctx, key, "")
	return h, err
}

// Ask implements [driver.Asker]: one round trip.
func (d *Driver) Ask(ctx context.Context, key string) (h driver.Holder, asked bool, err error) {
	h, told, err := d.inspect(ctx, key, string(rune(driver.SignalRequest)))
	return h, err == nil && told != "" && told == h.ID, err
}

// inspect returns the holder, and the claim that was sent a signal of that kind; "": none.
func (d *Driver) inspect(ctx context.Context, key, kind string) (h driver.Holder, told string, err error) {
	c := d.command(d.script(inspectScript, inspectInCluster), driver.Request{Claim: driver.Claim{Key: key}, Fencing: true})
	c.Words = append(c.Words, kind)
	if d.channels != nil {
		c.appendChannel(d)
	}
	reply, err := d.conn.Do(ctx, &c.Command)
	c.free()
	if err != nil {
		return h, "", storeError(err)
	}
	r, _ := reply.([]any)
	if len(r) == 8 {
		told, _ = r[7].(string)
		r = r[:7]
	}
	h, err = d.holderIn(key, r)
	return h, told, err
}

// script returns the variant for the set-up.
func (d *Driver) script(single, inCluster *redisconn.Script) *redisconn.Script {
	if d.IsCluster() {
		return inCluster
	}
	return single
}

// Break implements [driver.Inspector]: one round trip.
func (d *Driver) Break(ctx context.Context, h driver.Holder) error {
	var kind []any
	for _, l := range d.p.Layouts {
		switch {
		case l.Strategy != h.Strategy || !l.OnSeveralServers:
		case l.Strategy != d.p.Name:
			return fmt.Errorf("%w: this server is one of several that have the lock; %s takes it from all of them", locker.ErrConflict, l.Strategy)
		default:
			kind = []any{string(rune(SignalPart))} // the other servers may have the lock still
		}
	}
	if h.Limit > 0 {
		return d.Run(ctx, d.p.ReleasePermits, driver.Claim{Key: h.Key, ID: h.ID})
	}
	return d.Run(ctx, d.script(breakScript, breakInCluster), driver.Claim{Key: h.Key, ID: h.ID}, kind...)
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
func (d *Driver) holderIn(key string, r []any) (driver.Holder, error) {
	if len(r) != 7 {
		return driver.Holder{}, unexpected(r)
	}
	pttl, now := number(r[1]), number(r[6])
	e := &Entry{Kind: fmt.Sprint(r[0]), Queue: fieldsOf(r[4]), Counter: number(r[3]), Now: time.UnixMicro(now)}
	h := driver.Holder{Key: key, Held: e.Kind != "none", Remaining: -1}
	if pttl >= 0 && pttl < math.MaxInt64/int64(time.Millisecond) {
		h.Remaining = time.Duration(pttl) * time.Millisecond
	}
	switch e.Kind {
	case "none":
		h.Remaining = 0
	case "string":
		e.Value, _ = r[2].(string)
		h.ID, h.Owner = e.Value, e.Value // unless it is recognised, any program may have set it
	case "hash":
		e.Fields = fieldsOf(r[2])
	default:
		return driver.Holder{}, fmt.Errorf("%w: it is a %s", locker.ErrConflict, e.Kind)
	}
	for _, l := range d.p.Layouts {
		if l.Recognize(e, &h) {
			h.Strategy = l.Strategy
			break
		}
	}
	for _, l := range d.p.Layouts {
		if l.Queue != nil {
			h.Queue = append(h.Queue, l.Queue(e)...)
		}
	}
	// Tokens are the time of the grant, or a few more where several were reserved.
	if h.Token > 0 && h.Token <= now+100 {
		h.Since = time.UnixMicro(min(h.Token, now))
	}
	h.Metadata = driver.MetadataOf(h.ID)
	h.Waiting = len(h.Queue) + int(number(r[5]))
	return h, nil
}

func fieldsOf(reply any) map[string]string {
	flat, _ := reply.([]any)
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		fields[fmt.Sprint(flat[i])] = fmt.Sprint(flat[i+1])
	}
	return fields
}

// number returns the integer s, 0 if s is none.
func number(reply any) int64 {
	n, _ := reply.(int64)
	return n
}
