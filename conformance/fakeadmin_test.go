package conformance_test

import (
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// Inspect implements [driver.Inspector].
func (d *fakeDriver) Inspect(ctx context.Context, key string) (h driver.Holder, err error) {
	h.Key = key
	cerr := d.s.command(ctx, "inspect", func() {
		switch d.s.foreign[key] {
		case "lock":
			h.Held = true
			return
		case "thing":
			err = locker.ErrConflict
			return
		}
		for w := range d.s.watches {
			if w.key == key {
				h.Waiting++
			}
		}
		l := d.s.live(key)
		if l == nil {
			return
		}
		h.Held, h.Owner, h.Token, h.Remaining = true, l.owner, l.token, time.Until(l.until())
		for id, hold := range l.holds {
			h.ID, h.Holds = id, h.Holds+hold.n
		}
		h.Metadata = driver.MetadataOf(h.ID)
	})
	return h, errors.Join(err, cerr)
}

// Keys implements [driver.Inspector].
func (d *fakeDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	var keys []string
	noSlash := strings.NewReplacer("/", "\x00")
	err := d.s.command(ctx, "inspect", func() {
		for key := range d.s.locks {
			if matches, _ := path.Match(noSlash.Replace(pattern), noSlash.Replace(key)); matches {
				keys = append(keys, key)
			}
		}
	})
	return func(yield func(string, error) bool) {
		if err != nil {
			yield("", err)
		}
		for _, key := range slices.Compact(keys) {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Inspector].
func (d *fakeDriver) Break(ctx context.Context, h driver.Holder) (err error) {
	cerr := d.s.command(ctx, "inspect", func() {
		if err = notHeld(driver.Claim{Key: h.Key, ID: h.ID}); d.held(driver.Claim{Key: h.Key, ID: h.ID}) != nil {
			d.s.drop(h.Key) // its queue would refuse the Locker that acquires the key after this
			err = nil
		}
	})
	return errors.Join(err, cerr)
}
