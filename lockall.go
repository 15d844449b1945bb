package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// Leases are the leases on several keys that one [LockAll] was granted. They are held
// together: once one of them is over, the set is. The methods may be called from many
// goroutines. Those of a nil or zero Leases fail with [ErrInvalid] or return zero values.
type Leases struct {
	all []*Lease // by key

	hook sync.Once
	end  sync.Once
	lost chan struct{}
}

// LockAll waits until the caller holds all keys; if it fails, it gives back those that it has. A key
// that is given twice counts once. LockAll takes keys in the order of their bytes, so its callers never
// wait for each other in a circle. Such a circle is still possible if the caller already holds a key that
// sorts after one of keys.
//
// LockAll asks for up to 128 keys at the same time, which is one round trip on one server. When a key
// is taken, the caller keeps the keys that sort before it, gives back those that sort after it, waits
// for the taken key in its queue, and asks for the rest again. So callers with one key cannot pass
// a caller with many keys for ever. LockAll sends a command for each key, and one for each key that it gives
// back. Each attempt for a key is an event of its own.
//
// [WithWait] bounds the wait for all keys together. l is a [Client], a [Wrapper] of one, through which
// each Lock and TryLock goes, or any other Locker. LockAll does not know the defaults of another Locker, and bounds
// the wait there only by a WithWait among opts.
//
// The options are those of [Locker].Lock, and apply to each key; TTLs and limits count from when a key
// was granted. LockAll fails as Lock does, with an error that names the key. Without keys it fails with
// [ErrInvalid]. It fails with [ErrLost]
// when a lease was lost while the call waited for another key, as may happen to leases
// [WithoutRenewal].
func LockAll(ctx context.Context, l Locker, keys []string, opts ...LockOption) (*Leases, error) {
	if ctx == nil || l == nil || len(keys) == 0 {
		return nil, invalid("LockAll needs a context, a Locker and one key or more; one of them is missing")
	}
	wait, err := waitOf(l, opts)
	if err != nil {
		return nil, err
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	for _, key := range keys { // before any is taken
		if err := Validate(l, key, opts...); err != nil {
			return nil, err
		}
	}
	held := &Leases{lost: make(chan struct{})}
	ctx = bound.Undated(ctx)
	trying, end := context.WithCancel(ctx)
	defer end()
	for err == nil && len(held.all) < len(keys) {
		err = held.more(trying, end, l, keys[len(held.all):], wait, opts)
	}
	if lost := held.lostOne(); lost != nil {
		err = fmt.Errorf("%w, while the call waited for other keys", lost)
	}
	if err != nil {
		held.giveBack(ctx)
		return nil, err
	}
	return held, nil
}

// DoAll runs fn while holding keys. The context given to fn ends with the first lease that ends. An
// error of DoAll names the first key in order. See [LockAll] for the keys and [Do] for the rules.
func DoAll(ctx context.Context, l Locker, keys []string, fn func(ctx context.Context) error, opts ...LockOption) error {
	key := ""
	if len(keys) > 0 {
		key = slices.Min(keys)
	}
	return doHolding(ctx, key, fn, func() (held, error) { return LockAll(ctx, l, keys, opts...) })
}

// atOnce is for how many keys a call asks at the same time.
const atOnce = 128

// more gets the keys before the first that is taken, and waits for the taken one.
// A loss ends ctx by end.
func (s *Leases) more(ctx context.Context, end func(), l Locker, keys []string, wait waitBudget, opts []LockOption) error {
	if len(keys) > 1 {
		trying, cancel := wait.bound(ctx)
		defer cancel()
		got, err := tryEach(trying, l, keys[:min(len(keys), atOnce)], opts)
		s.add(ctx, end, got...)
		switch {
		case err == nil, wait.isTry(), ctx.Err() != nil && errors.Is(err, ErrUnavailable) && driver.MaybeApplied(err):
			return err
		case wait.isOver():
			return wait.fail(l, keys[len(got)], err)
		}
		keys = keys[len(got):]
	}
	lease, err := l.Lock(ctx, keys[0], wait.rest(opts)...)
	if err == nil {
		s.add(ctx, end, lease)
	}
	return err
}

func (s *Leases) add(ctx context.Context, end func(), leases ...*Lease) {
	for _, l := range leases {
		context.AfterFunc(l.Context(ctx), end)
	}
	s.all = append(s.all, leases...)
}

func (s *Leases) lostOne() error {
	if err := s.Err(); isLost(err) {
		return err
	}
	return nil
}

// tryEach asks for keys at the same time, and returns the leases on those before the first
// one that was refused, and why it was. The others it gives back.
func tryEach(ctx context.Context, l Locker, keys []string, opts []LockOption) ([]*Lease, error) {
	got, errs := make([]*Lease, len(keys)), make([]error, len(keys))
	inParallel(len(keys), func(i int) { got[i], errs[i] = l.TryLock(ctx, keys[i], opts...) })
	refused := slices.Index(got, nil)
	if refused < 0 {
		return got, nil
	}
	rest := Leases{all: slices.DeleteFunc(slices.Clone(got[refused:]), func(l *Lease) bool { return l == nil })}
	rest.giveBack(ctx)
	return got[:refused], errs[refused]
}

// giveBack unlocks all leases; see [Lease.giveBack].
func (s *Leases) giveBack(ctx context.Context) {
	if s.zero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	_ = s.Unlock(ctx)
}

func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := 1; i < n; i++ {
		wg.Go(func() { f(i) })
	}
	if n > 0 {
		f(0)
	}
	wg.Wait()
}

func (s *Leases) zero() bool { return s == nil || len(s.all) == 0 }

// Keys returns the keys, each once, in the order of their bytes.
func (s *Leases) Keys() (keys []string) {
	if s.zero() {
		return nil
	}
	for _, l := range s.all {
		keys = append(keys, l.Key())
	}
	return keys
}

// Lease returns the lease on key, whose Token the resource needs. It returns nil if the set has no such key.
func (s *Leases) Lease(key string) *Lease {
	if s.zero() {
		return nil
	}
	i, ok := slices.BinarySearchFunc(s.all, key, func(l *Lease, key string) int { return strings.Compare(l.Key(), key) })
	if !ok {
		return nil
	}
	return s.all[i]
}

// Deadline returns the earliest of the leases' deadlines; see [Lease.Deadline].
func (s *Leases) Deadline() (first time.Time) {
	if s.zero() {
		return first
	}
	first = s.all[0].Deadline()
	for _, l := range s.all[1:] {
		if d := l.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}

// Err returns nil while all leases are held. It matches [ErrLost] after the loss of one, and
// [ErrNotHeld] after Unlock.
func (s *Leases) Err() error {
	if s.zero() {
		return errZeroLease("Err")
	}
	var ended error
	for _, l := range s.all {
		switch err := l.Err(); {
		case isLost(err):
			return err
		case err != nil:
			ended = err
		}
	}
	return ended
}

// Lost returns a channel that is closed when one of the leases is lost. Unlock never closes
// it. It takes no goroutine.
func (s *Leases) Lost() <-chan struct{} {
	if s.zero() {
		return closedChan
	}
	s.hook.Do(func() {
		for _, l := range s.all {
			context.AfterFunc(l.Context(context.Background()), s.look)
		}
	})
	s.look()
	return s.lost
}

func (s *Leases) look() {
	if isLost(s.Err()) {
		s.end.Do(func() { close(s.lost) })
	}
}

// Context returns a child of parent that ends with the first of the leases that ends; see
// [Lease.Context]. Lock, and LockAll, on the keys re-enter under it.
func (s *Leases) Context(parent context.Context) context.Context {
	if s.zero() {
		return (*Lease)(nil).Context(parent)
	}
	for _, l := range s.all {
		parent = l.Context(parent)
	}
	return parent
}

// Renew extends all leases, as [Lease.Renew] does.
func (s *Leases) Renew(ctx context.Context) error {
	if s.zero() {
		return errZeroLease("Renew")
	}
	return errors.Join(s.each(func(i int) error { return s.all[i].Renew(ctx) })...)
}

// Unlock gives all leases back, as [Lease.Unlock] does: on one server, in one round trip.
// The error has those of all leases that were lost, or not given back; then it may be
// called again, and gives back the rest.
func (s *Leases) Unlock(ctx context.Context) error {
	if ctx == nil {
		return invalid("Unlock needs a context; it need not be alive")
	}
	if s.zero() {
		return errZeroLease("Unlock")
	}
	// The first lease that ends, ends the contexts of the set; the others are to go on.
	for _, l := range slices.Backward(s.all) {
		var cancel context.CancelFunc
		ctx, cancel = l.untied(ctx)
		defer cancel()
	}
	done := make([]bool, len(s.all)) // before
	errs := s.each(func(i int) error {
		err := s.all[i].Unlock(ctx)
		done[i] = errors.Is(err, ErrNotHeld)
		return err
	})
	if slices.Contains(done, false) {
		for i := range errs {
			if done[i] {
				errs[i] = nil
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Leases) each(f func(i int) error) []error {
	errs := make([]error, len(s.all))
	inParallel(len(s.all), func(i int) { errs[i] = f(i) })
	return errs
}
