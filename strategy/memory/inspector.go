package memory

import (
	"context"
	"fmt"
	"iter"
	"path"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
)

// Inspect implements [driver.Inspector].
func (d storeDriver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	if err := dead(ctx); err != nil {
		return driver.Holder{}, err
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	now, h := time.Now(), driver.Holder{Key: key, Waiting: len(d.s.watches[key])}
	if g := d.s.holder(key, now); g != nil {
		h.Held, h.ID, h.Owner, h.Strategy, h.Token, h.Since, h.Remaining = true, g.id, g.owner, d.Name(), g.token, g.since, g.until.Sub(now)
		h.Metadata = driver.MetadataOf(g.id)
	}
	return h, nil
}

// Keys implements [driver.Inspector].
func (d storeDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, key := range d.s.Keys() {
			// For path.Match no * is a slash.
			matches, err := path.Match(noSlash.Replace(pattern), noSlash.Replace(key))
			if err != nil {
				err = fmt.Errorf("%w: the pattern %q: %w", driver.ErrInvalid, pattern, err)
			} else {
				err = dead(ctx)
			}
			if (matches || err != nil) && (!yield(key, err) || err != nil) {
				return
			}
		}
	}
}

var noSlash = strings.NewReplacer("/", "\x00")

// Break implements [driver.Inspector].
func (d storeDriver) Break(ctx context.Context, h driver.Holder) error {
	if err := dead(ctx); err != nil {
		return err
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if g := d.s.holder(h.Key, time.Now()); g == nil || g.id != h.ID {
		return errLost
	}
	d.s.drop(h.Key)
	return nil
}
