package conformance_test

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// brokenAdmins tell of holders, or take keys from them, in a wrong way.
var brokenAdmins = map[string]brokenStrategy{
	"shows holders that are gone": {inspecting(func(h *driver.Holder) { h.Held = true }),
		[]string{"InspectTellsHolder", "ForceUnlockFrees"}},
	"shows no owner":                   {inspecting(func(h *driver.Holder) { h.Owner = h.ID }), []string{"InspectTellsNamedOwner"}},
	"shows one hold":                   {inspecting(func(h *driver.Holder) { h.Holds = min(h.Holds, 1) }), []string{"InspectTellsNamedOwner"}},
	"shows an old token":               {inspecting(func(h *driver.Holder) { h.Token = min(h.Token, 1) }), []string{"InspectTellsHolder"}},
	"shows no TTL":                     {inspecting(func(h *driver.Holder) { h.Remaining = 0 }), []string{"InspectTellsHolder"}},
	"shows the wrong time":             {inspecting(func(h *driver.Holder) { h.Since = time.Now().Add(-time.Hour) }), []string{"InspectTellsHolder"}},
	"shows waiters that are not there": {inspecting(func(h *driver.Holder) { h.Waiting++ }), []string{"ForceUnlockWakes"}},
	"shows no metadata":                {inspecting(func(h *driver.Holder) { h.Metadata = nil }), []string{"MetadataIsKept"}},
	"takes things for free": {administering(func(d *administered) {
		d.inspect = func(d *counting, ctx context.Context, key string) (driver.Holder, error) {
			h, err := d.Inspect(ctx, key)
			if h.ID == "" {
				h, err = driver.Holder{Key: key}, nil
			}
			return h, err
		}
	}), []string{"ForceUnlockOfThingsIsConflict"}},
	"lists everything": {administering(func(d *administered) {
		d.keys = func(d *counting, ctx context.Context, pattern string) iter.Seq2[string, error] {
			return d.Keys(ctx, "*")
		}
	}), []string{"HoldersLists"}},
	"takes a prefix for a pattern": {administering(func(d *administered) {
		d.keys = func(d *counting, ctx context.Context, pattern string) iter.Seq2[string, error] {
			return d.Keys(ctx, strings.ReplaceAll(pattern, `\`, ""))
		}
	}), []string{"HoldersLists"}},
	"breaks whatever is there": {administering(func(d *administered) {
		d.breaks = func(d *counting, ctx context.Context, h driver.Holder) error {
			d.locked(func() { delete(d.s.Locks, h.Key) })
			return nil
		}
	}), []string{"ForceUnlockSparesSuccessor", "BreakNeedsTheID"}},
	"breaks what the owner has": {administering(func(d *administered) {
		d.breaks = func(d *counting, ctx context.Context, h driver.Holder) (err error) {
			d.locked(func() {
				if l := d.s.Live(h.Key); l != nil && l.Owner == h.Owner {
					delete(d.s.Locks, h.Key)
				} else {
					err = locker.ErrLost
				}
			})
			return err
		}
	}), []string{"ForceUnlockSparesSuccessor"}},
	"breaks one share": {administering(func(d *administered) {
		d.breaks = func(d *counting, ctx context.Context, h driver.Holder) error {
			return d.Release(ctx, driver.Claim{Key: h.Key, ID: h.ID})
		}
	}), []string{"ForceUnlockEndsShares"}},
	"has ids of its own for holders": {administering(func(d *administered) {
		d.inspect = func(d *counting, ctx context.Context, key string) (driver.Holder, error) {
			h, err := d.Inspect(ctx, key)
			h.Owner, h.ID = "!"+h.Owner, "!"+h.ID
			return h, err
		}
		d.breaks = func(d *counting, ctx context.Context, h driver.Holder) error {
			h.ID = strings.TrimPrefix(h.ID, "!")
			return d.Break(ctx, h)
		}
	}), []string{"ForceUnlockOfOwnLock"}},
	"breaks nothing": {administering(func(d *administered) {
		d.breaks = func(*counting, context.Context, driver.Holder) error { return nil }
	}), []string{"ForceUnlockFrees", "ForceUnlockWakes"}},
	"keeps metadata to itself": {options(locker.WithMetadata("job", "b")), []string{"InspectTellsHolder"}},
}

// administered is a driver with some methods of a [driver.Inspector] replaced.
type administered struct {
	counted
	inspect func(d *counting, ctx context.Context, key string) (driver.Holder, error)
	keys    func(d *counting, ctx context.Context, pattern string) iter.Seq2[string, error]
	breaks  func(d *counting, ctx context.Context, h driver.Holder) error
}

func (d administered) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	if d.inspect != nil {
		return d.inspect(d.counting, ctx, key)
	}
	return d.counting.Inspect(ctx, key)
}

func (d administered) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	if d.keys != nil {
		return d.keys(d.counting, ctx, pattern)
	}
	return d.counting.Keys(ctx, pattern)
}

func (d administered) Break(ctx context.Context, h driver.Holder) error {
	if d.breaks != nil {
		return d.breaks(d.counting, ctx, h)
	}
	return d.counting.Break(ctx, h)
}

func administering(f func(d *administered)) fake {
	v := fakeCounting
	v.fakeDriver = func(s *fakeStore) driver.Driver {
		d := administered{counted: newCounted(s)}
		f(&d)
		return d
	}
	return v
}

// inspecting tells of holders otherwise than they are.
func inspecting(f func(h *driver.Holder)) fake {
	return administering(func(d *administered) {
		d.inspect = func(d *counting, ctx context.Context, key string) (driver.Holder, error) {
			h, err := d.Inspect(ctx, key)
			f(&h)
			return h, err
		}
	})
}
