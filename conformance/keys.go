package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var keyCases = group("keys", []Case{
	{Name: "KeysAreIndependent", Rules: []string{"R1", "R23"}, Test: testKeysAreIndependent,
		Contract: "keys that differ, if only in case, in a space or by a suffix, are held side by side"},
	{Name: "HostileKeys", Rules: []string{"R23"}, Test: testHostileKeys,
		Contract: "keys with braces, control characters, separators, emoji and of the greatest length work like any other"},
	{Name: "HostileKeysWait", Rules: []string{"R15", "R23"}, Test: testHostileKeysWait,
		Contract: "waiters for hostile keys get them within the bound"},
	{Name: "BadKeys", Rules: []string{"R17", "R23"}, Locker: true, Test: testBadKeys,
		Contract: "a key that is empty, longer than 16 KiB or not UTF-8 is ErrInvalid"},
	{Name: "BadCallOptions", Rules: []string{"R17"}, Locker: true, Test: testBadCallOptions,
		Contract: "a bad option of a call, a nil option and a nil context are ErrInvalid"},
	{Name: "BadConstructorOptions", Rules: []string{"R17"}, Needs: Capabilities{Construct: true}, Test: testBadConstructorOptions,
		Contract: "a constructor refuses bad options, and driver options it does not know, with ErrInvalid"},
	{Name: "PrefixesAreApart", Rules: []string{"R23"}, Test: testPrefixesAreApart,
		Contract: "Lockers with different prefixes do not meet; a prefix and key that make the same name as others do"},
	{Name: "PrefixInStore", Rules: []string{"R23"}, Needs: Capabilities{Inspect: true}, Test: testPrefixInStore,
		Contract: "the lock is in the store under its prefix and key"},
	{Name: "CompanionKeysAreKeys", Rules: []string{"R1", "R23"}, Needs: Capabilities{Inspect: true}, Isolated: true, Test: testCompanionKeysAreKeys,
		Contract: "locking a key named like something the strategy keeps beside another lock does that lock no harm"},
	{Name: "ForeignLocksAreHeld", Rules: []string{"R23"}, Needs: Capabilities{Plant: true}, Fault: true, Test: testForeignLocksAreHeld,
		Contract: "what could be somebody else's lock counts as held and is never changed"},
	{Name: "ForeignThingsConflict", Rules: []string{"R17", "R23"}, Needs: Capabilities{Plant: true}, Fault: true, Test: testForeignThingsConflict,
		Contract: "what cannot be a lock is ErrConflict at once, also for one who would wait, and is never changed"},
})

func testKeysAreIndependent(t *T) {
	a, b := t.Locker(), t.Locker()
	base := t.Key("k")
	var leases []*locker.Lease
	for _, suffix := range []string{"", "a", "A", " ", "a ", ":a", "a:", ".", "/", "*", "a*"} {
		leases = append(leases, t.TryLock(a, base+suffix))
	}
	for _, lease := range leases {
		t.Taken(b, lease.Key())
		t.Unlock(lease)
		t.Free(b, lease.Key())
	}
}

// hostileKeys are keys that naive implementations fall over. id is somewhere in
// each of them.
func hostileKeys(id string) []string {
	keys := []string{
		"{" + id + "}", "{}" + id, id + "{}", "{" + id, "}" + id + "{", "{{" + id + "}}", "a{" + id + "}b{c}", "{a}{" + id + "}",
		id + "\x00", "\x00" + id, id + "\x00a", id + "\x00b", id + "\na", id + "\nb", id + "\r\n", id + "\r\n$3\r\nfoo\r\n", id + "\t\v\x1b[31m\x7f", " " + id + " ", id + "\\", id + `"'`,
		id + "%s%d%n", id + ":", ":" + id, "::" + id + "::", id + "?*[a-z]", id + "/../..", "\U0001F512" + id + "\U0001F469\u200d\U0001F467", id + "\u202e\ufeff",
		id + "\u00e9", id + "e\u0301", "__" + id + "__", "-" + id, id + "--", id + ";DROP TABLE locks", "redis:" + id,
	}
	long := locker.MaxKeyLen - len(id) - 1
	return append(keys, id+strings.Repeat("x", long)+"y", id+strings.Repeat("x", long)+"z", id+strings.Repeat("{", long))
}

func testHostileKeys(t *T) {
	a, b := t.Locker(), t.Locker()
	keys := hostileKeys(t.Key("k"))
	var leases []*locker.Lease
	for _, key := range keys {
		lease, err := a.TryLock(t.Context(), key)
		if err != nil {
			t.Errorf("TryLock of %.60q: %v", key, err)
			continue
		}
		leases = append(leases, lease)
	}
	for _, lease := range leases {
		if _, err := b.TryLock(t.Context(), lease.Key()); err == nil {
			t.Errorf("%.60q was granted twice", lease.Key())
		}
		t.Unlock(t.LockUnder(lease.Context(t.Context()), a, lease.Key()))
		t.NoError(lease.Renew(t.Context()), fmt.Sprintf("Renew of %.60q", lease.Key()))
		t.NoError(lease.Unlock(t.Context()), fmt.Sprintf("Unlock of %.60q", lease.Key()))
		t.Free(b, lease.Key())
	}
}

func testHostileKeysWait(t *T) {
	a, b := t.Locker(), t.Locker()
	var leases []*locker.Lease
	var waiters []*suite.Waiter
	for _, key := range hostileKeys(t.Key("k")) {
		leases = append(leases, t.Lock(a, key))
		w := t.Start(b, key)
		waiters = append(waiters, w)
	}
	for i, lease := range leases {
		t.Unlock(lease)
		t.Unlock(t.Granted(waiters[i], t.Timing().PollWithin))
	}
}

func testBadKeys(t *T) {
	l := t.Locker()
	for _, key := range []string{"", strings.Repeat("x", locker.MaxKeyLen+1), "\xff", t.Key("k") + "\xc3"} {
		t.Prompt("a call with a bad key", func() {
			_, err := l.Lock(t.Context(), key)
			t.Is(err, locker.ErrInvalid)
			_, err = l.TryLock(t.Context(), key)
			t.Is(err, locker.ErrInvalid)
			err = locker.Do(t.Context(), l, key, func(context.Context) error {
				t.Errorf("Do ran its function")
				return nil
			})
			t.Is(err, locker.ErrInvalid)
		})
	}
}

// badCallOptions are refused as options of a call and of a constructor.
var badCallOptions = map[string]locker.LockOption{
	"WithTTL(0)":          locker.WithTTL(0),
	"WithTTL(-1s)":        locker.WithTTL(-time.Second),
	"WithTTL(99ms)":       locker.WithTTL(locker.MinTTL - 1),
	"WithWait(-1)":        locker.WithWait(-1),
	"WithMaxRenewals(0)":  locker.WithMaxRenewals(0),
	"WithMaxRenewals(-1)": locker.WithMaxRenewals(-1),
	"WithMaxHold(0)":      locker.WithMaxHold(0),
	"WithMaxHold(-1s)":    locker.WithMaxHold(-time.Second),
	"nil":                 nil,
}

func testBadCallOptions(t *T) {
	every := t.Timing().ShortTTL
	l, key := t.Locker(locker.WithRenewInterval(every)), t.Key("k")
	check := func(name string, ctx context.Context, opts ...locker.LockOption) {
		for call, f := range map[string]func(context.Context, string, ...locker.LockOption) (*locker.Lease, error){"Lock": l.Lock, "TryLock": l.TryLock} {
			lease, err := f(ctx, key, opts...)
			if err == nil {
				t.Errorf("%s with %s was granted", call, name)
				_ = lease.Unlock(t.Context())
				continue
			}
			t.Is(err, locker.ErrInvalid)
		}
	}
	for name, o := range badCallOptions {
		check(name, t.Context(), o)
	}
	check("a TTL not above the renewal interval", t.Context(), locker.WithTTL(every))
	check("no context", nil)
	t.Unlock(t.Lock(l, key, locker.WithTTL(every), locker.WithoutRenewal()))
}

func testBadConstructorOptions(t *T) {
	bad := map[string]locker.Option{
		"WithPrefix(invalid UTF-8)": locker.WithPrefix("\xff"),
		"WithPrefix(too long)":      locker.WithPrefix(strings.Repeat("x", locker.MaxKeyLen+1)),
		"WithLogger(nil)":           locker.WithLogger(nil),
		"suite.WithObserver(nil)":   locker.WithObserver(nil),
		"WithRenewInterval(0)":      locker.WithRenewInterval(0),
		"WithRenewInterval(TTL)":    locker.WithRenewInterval(locker.DefaultTTL),
		"WithDriverOption(unknown)": locker.WithDriverOption(struct{ unknown int }{}),
	}
	for name, o := range badCallOptions {
		if o == nil {
			bad["nil"] = nil // not a nil LockOption in an Option that is not
			continue
		}
		bad[name] = o
	}
	for name, o := range bad {
		l, err := must[Constructor](t.h).New(o)
		if err == nil {
			t.Errorf("%s was accepted", name)
			_ = l.Close()
			continue
		}
		t.Is(err, locker.ErrInvalid)
	}
}

func testPrefixesAreApart(t *T) {
	one, two, none := t.Locker(locker.WithPrefix(t.Key("one:"))), t.Locker(locker.WithPrefix(t.Key("two:"))), t.Locker()
	key := "k"
	leases := []*locker.Lease{t.TryLock(one, key), t.TryLock(two, key), t.TryLock(none, t.Key(key))}
	for _, lease := range leases {
		if !strings.HasSuffix(lease.Key(), key) || strings.Contains(lease.Key(), "one:") {
			t.Errorf("Key is %q", lease.Key())
		}
	}
	t.Taken(none, t.Key("one:")+key)
	t.Taken(none, t.Key("two:")+key)
	for _, lease := range leases {
		t.Unlock(lease)
	}
	// A lease's context is of the key in the store, and of its own Locker.
	lease := t.TryLock(none, t.Key("one:")+key)
	t.TakenUnder(lease.Context(t.Context()), one, key)
	t.Unlock(lease)
	t.Free(one, key)
}

func testPrefixInStore(t *T) {
	prefix, name := t.Key("prefix:"), t.Key("k")
	lease := t.Lock(t.Locker(locker.WithPrefix(prefix)), name)
	for key, want := range map[string]bool{prefix + name: true, name: false, prefix: false} {
		holder, err := t.inspector().Holder(t.Context(), key)
		t.NoError(err, "looking for the holder")
		if (holder != "") != want {
			t.Errorf("%q is held by %q", key, holder)
		}
	}
	t.Unlock(lease)
}

func testCompanionKeysAreKeys(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	before := t.storedKeys()
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	for _, k := range t.newKeys(before) {
		if k.Name == key || !strings.Contains(k.Name, key) {
			continue
		}
		// Whatever the answer is: free, held, or no lock.
		if odd, err := a.TryLock(t.Context(), k.Name); err == nil {
			t.Unlock(odd)
		}
		if odd, err := b.Lock(t.Context(), k.Name, locker.WithWait(t.Timing().RenewEvery)); err == nil {
			t.Unlock(odd)
		}
	}
	t.NoError(lease.Renew(t.Context()), "Renew")
	t.Waits(w)
	t.Unlock(lease)
	next := t.Granted(w, t.Timing().PollWithin)
	t.newer(next.Token(), lease.Token())
	t.Unlock(next)
}

func testForeignLocksAreHeld(t *T) {
	l := t.Locker()
	for _, f := range t.planter().Foreigners() {
		if f.Conflict {
			continue
		}
		key := t.Key(f.Name)
		t.NoError(t.planter().Plant(t.Context(), key, f.Name), "planting "+f.Name)
		t.Taken(l, key)
		t.TakenUnder(locker.ContextWithOwner(t.Context(), "x"), l, key)
		_, err := l.Lock(t.Context(), key, locker.WithWait(t.Timing().RenewEvery))
		t.Is(err, locker.ErrNotAcquired)
		t.intact(key, f)
	}
}

func testForeignThingsConflict(t *T) {
	l := t.Locker()
	for _, f := range t.planter().Foreigners() {
		if !f.Conflict {
			continue
		}
		key := t.Key(f.Name)
		t.NoError(t.planter().Plant(t.Context(), key, f.Name), "planting "+f.Name)
		_, err := l.TryLock(t.Context(), key)
		t.Is(err, locker.ErrConflict)
		t.Prompt("Lock of a key that is no lock", func() {
			_, err = l.Lock(t.Context(), key)
			t.Is(err, locker.ErrConflict)
			t.Isnt(err, locker.ErrNotAcquired)
		})
		t.intact(key, f)
	}
}

func (t *T) intact(key string, f Foreigner) {
	t.Helper()
	ok, err := t.planter().Intact(t.Context(), key, f.Name)
	t.NoError(err, "looking for "+f.Name)
	if !ok {
		t.Errorf("%s at the key was changed", f.Name)
	}
}
