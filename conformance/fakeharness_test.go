package conformance_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
)

// fake is a strategy on a fakeStore.
type fake struct {
	name       string
	fakeDriver func(s *fakeStore) driver.Driver
	near       func(d fullDriver) driver.Driver // around it, in the process that locks; or nil
	caps       func(c *conformance.Capabilities)
	opts       []locker.Option                     // added to those of each Locker
	wrap       func(l locker.Locker) locker.Locker // around each Locker
	timing     conformance.Timing
}

func polling(s *fakeStore) driver.Driver { return &fakeDriver{s: s} }
func withNotifications(s *fakeStore) driver.Driver {
	return &notifying{fakeDriver{s: s, fair: true}}
}
func withCounts(s *fakeStore) driver.Driver {
	return &counting{notifying{fakeDriver{s: s, counts: true}}}
}

// The sound ones. Between them they have every capability, and lack each but
// Fencing.
var (
	fakePolling  = fake{name: "fake, polling", fakeDriver: polling}
	fakeNotified = fake{name: "fake, notified", fakeDriver: withNotifications, caps: func(c *conformance.Capabilities) {
		c.Notified, c.Fair = true, true
	}}
	fakeCounting = fake{name: "fake, counting", fakeDriver: withCounts, caps: func(c *conformance.Capabilities) {
		c.Notified, c.StoredHolds = true, true
	}}
	fakePermitting = fake{name: "fake, permitting", fakeDriver: func(s *fakeStore) driver.Driver { return keeping{newCounted(s)} },
		caps: func(c *conformance.Capabilities) { c.Notified, c.StoredHolds, c.Permits = true, true, true }}
	fakeUnfenced = fake{name: "fake, without fencing", fakeDriver: polling, opts: []locker.Option{locker.WithoutFencing()},
		caps: func(c *conformance.Capabilities) { c.Fencing = false }}
	fakeQuorum = onServers(3, 5)
)

// onServers is a strategy that says that so many of its servers have each lock.
func onServers(have, of int) fake {
	return fake{name: "fake, on several servers", fakeDriver: func(s *fakeStore) driver.Driver { return counter{&fakeDriver{s: s}, have, of} },
		caps: func(c *conformance.Capabilities) { c.Quorum = true }}
}

// counter is a [driver.NodeCounter].
type counter struct {
	*fakeDriver
	have, of int
}

func (c counter) Nodes(driver.Claim) (have, of int) { return c.have, c.of }

// The whole suite on each of the sound ones, under the timing of TestBroken: with
// LOCKER_CONFORMANCE=all.

func TestFakeCounting(t *testing.T) {
	runFake(t, fakeCounting, conformance.WithCases(conformance.TroubleCases(fakeTroubles...)...))
}

func TestFakeNotified(t *testing.T)   { runFake(t, fakeNotified) }
func TestFakePermitting(t *testing.T) { runFake(t, fakePermitting) }
func TestFakePolling(t *testing.T)    { runFake(t, fakePolling) }
func TestFakeUnfenced(t *testing.T)   { runFake(t, fakeUnfenced) }

func runFake(t *testing.T, f fake, opts ...conformance.Option) {
	t.Helper()
	if os.Getenv("LOCKER_CONFORMANCE") != "all" {
		return // TestBroken runs the cases that catch something
	}
	f.timing = selfTiming
	conformance.Run(t, f.harness, append(opts, conformance.WithLockerCases())...)
}

func (f fake) harness(tb testing.TB) conformance.Harness {
	tb.Helper()
	h := newFakeHarness(f)
	h.served = sync.OnceValue(func() string { return serveRESP(tb, h) })
	h.rpc = func() string { return serveStore(tb, h.fakeDriver(h.s)) }
	return h
}

type fakeHarness struct {
	fake
	*conformance.Injector // the store's
	s                     *fakeStore
	served, rpc           func() string // where the store is reached by TCP, and by other processes
}

func newFakeHarness(f fake) *fakeHarness {
	s := newFakeStore()
	return &fakeHarness{fake: f, Injector: &s.Injector, s: s}
}

var _ interface {
	conformance.Harness
	conformance.Constructor
	conformance.Inspector
	conformance.Breaker
	conformance.Planter
	conformance.Faults
	conformance.ServerFaults
	conformance.ChildMaker
	conformance.Wired
} = (*fakeHarness)(nil)

func (h *fakeHarness) Timing() conformance.Timing { return h.timing }

func (h *fakeHarness) Capabilities() conformance.Capabilities {
	c := conformance.Capabilities{
		Name: h.name, Fencing: true, Admin: true, Signals: true, Sticky: true, LossDetection: true,
		Construct: true, Inspect: true, Break: true, Plant: true, Faults: true, Scripts: true, Servers: true, Processes: true, Drivers: true, Wired: true,
	}
	if h.caps != nil {
		h.caps(&c)
	}
	return c
}

func (h *fakeHarness) NewLocker(tb testing.TB, opts ...locker.Option) locker.Locker {
	tb.Helper()
	l, err := h.New(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func (h *fakeHarness) New(opts ...locker.Option) (locker.Locker, error) {
	return h.lockerOn(h.fakeDriver(h.s), opts)
}

// NewDriver implements [conformance.DriverMaker].
func (h *fakeHarness) NewDriver() (driver.Driver, error) { return h.nearby(h.fakeDriver(h.s)), nil }

// StoreAddr implements [conformance.Wired].
func (h *fakeHarness) StoreAddr() string { return h.served() }

// NewDriverAt implements [conformance.Wired].
func (h *fakeHarness) NewDriverAt(addr string) (driver.Driver, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true})
	d := respRemote{respCommands(rdb), addr}
	d.close = rdb.Close
	return h.nearby(wired{d}), nil
}

// wired is a driver that is reached by TCP, and closes its connections.
type wired struct{ respRemote }

func (w wired) Close() error { return w.close() }

// Inspect implements [driver.Inspector].
func (w wired) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	reply, err := w.ask(ctx, Command{Op: opInspect, Holder: driver.Holder{Key: key}})
	return reply.Holder, err
}

// Keys implements [driver.Inspector].
func (w wired) Keys(context.Context, string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", errors.ErrUnsupported) }
}

// Break implements [driver.Inspector].
func (w wired) Break(ctx context.Context, h driver.Holder) error {
	_, err := w.ask(ctx, Command{Op: opBreak, Holder: h})
	return err
}

// nearby is d with what is around it in the process that locks.
func (f fake) nearby(d driver.Driver) driver.Driver {
	if f.near != nil {
		return f.near(d.(fullDriver))
	}
	return d
}

// lockerOn makes a Locker of a driver.
func (f fake) lockerOn(d driver.Driver, opts []locker.Option) (locker.Locker, error) {
	l, err := locker.New(f.nearby(d), append(opts, f.opts...)...)
	if err == nil && f.wrap != nil {
		return f.wrap(l), nil
	}
	return l, err
}

// locked runs f with the store's mutex held.
func (h *fakeHarness) locked(f func()) error {
	h.s.Mu.Lock()
	defer h.s.Mu.Unlock()
	f()
	return nil
}

func (h *fakeHarness) Keys(context.Context) (keys []conformance.StoredKey, err error) {
	err = h.locked(func() {
		for k := range h.s.Locks {
			if l := h.s.Live(k); l != nil {
				keys = append(keys, conformance.StoredKey{Name: k, TTL: time.Until(l.Until())})
			}
		}
		for k := range h.s.tokens {
			keys = append(keys, conformance.StoredKey{Name: k + ":token", TTL: time.Hour})
		}
		for k := range h.s.tickets {
			keys = append(keys, conformance.StoredKey{Name: k + ":tickets", TTL: time.Minute})
		}
		for k, ttl := range h.s.garbage {
			keys = append(keys, conformance.StoredKey{Name: k, TTL: ttl})
		}
	})
	return keys, err
}

func (h *fakeHarness) Holder(_ context.Context, key string) (holder string, err error) {
	err = h.locked(func() {
		if l := h.s.Live(key); l != nil {
			for _, c := range l.Claims {
				holder += c.ID + " "
			}
		}
	})
	return holder, err
}

func (h *fakeHarness) TTL(_ context.Context, key string) (left time.Duration, err error) {
	err = h.locked(func() {
		if l := h.s.Live(key); l != nil {
			left = time.Until(l.Until())
		}
	})
	return left, err
}

func (h *fakeHarness) Break(_ context.Context, key string) error {
	defer h.s.changed(key)
	return h.locked(func() { delete(h.s.Locks, key) })
}

func (h *fakeHarness) Expire(ctx context.Context, key string) error { return h.Break(ctx, key) }

func (h *fakeHarness) Steal(_ context.Context, key string) error {
	defer h.s.changed(key)
	return h.locked(func() {
		h.s.Put(key, "thief", "thief", 0, time.Minute)
	})
}

func (h *fakeHarness) Flush(context.Context) error {
	return h.locked(func() { clear(h.s.Locks); clear(h.s.tokens) })
}

func (h *fakeHarness) Foreigners() []conformance.Foreigner {
	return []conformance.Foreigner{{Name: "lock"}, {Name: "thing", Conflict: true}}
}

func (h *fakeHarness) Plant(_ context.Context, key, foreigner string) error {
	return h.locked(func() { h.s.foreign[key] = foreigner })
}

func (h *fakeHarness) Intact(_ context.Context, key, foreigner string) (ok bool, err error) {
	err = h.locked(func() { ok = h.s.foreign[key] == foreigner })
	return ok, err
}

func (h *fakeHarness) Persist() error { return h.locked(func() { h.s.persists = true }) }

func (h *fakeHarness) Crash() error {
	_ = h.locked(func() {
		if !h.s.persists {
			clear(h.s.Locks)
			clear(h.s.tokens)
		}
	})
	return h.Refuse()
}

// CutConnections implements [conformance.ServerFaults]: what holders send next is on
// a connection that is no more.
func (h *fakeHarness) CutConnections() error {
	for _, op := range []conformance.Op{conformance.OpRenew, conformance.OpRelease} {
		if err := h.LoseReply(op); err != nil {
			return err
		}
	}
	return h.CutNotifications()
}

func (h *fakeHarness) Cause(trouble string) error {
	switch trouble {
	case "Stuck":
		return h.BlackHole()
	case "Full":
		return h.locked(func() { h.s.trouble = &driver.StoreError{Err: errors.New("out of memory"), Permanent: true} })
	}
	return h.locked(func() { h.s.trouble = &driver.StoreError{Err: errors.New("still loading"), NotApplied: true} })
}

func (h *fakeHarness) Recover() error {
	_ = h.locked(func() { h.s.trouble = nil })
	return h.Heal()
}

func (h *fakeHarness) CutNotifications() error {
	return h.locked(func() { h.s.deaf = time.Now().Add(200 * time.Millisecond) })
}

func (h *fakeHarness) ForgetScripts() error { return h.locked(func() { h.s.forgot = true }) }

func (h *fakeHarness) ChildSpec() string { return h.rpc() }
