package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/distlock/locker/driver"
)

var nobody = ObserverFunc(func(_ context.Context, _ Event) {})

// Every bad option is ErrInvalid, wherever it is given and whatever good ones are
// beside it.
func TestBadOptions(t *testing.T) {
	for name, o := range map[string]Option{
		"nil":                      nil,
		"TTL of 0":                 WithTTL(0),
		"TTL below the least":      WithTTL(MinTTL - 1),
		"TTL above the most":       WithTTL(MaxTTL + 1),
		"TTL of centuries":         WithTTL(math.MaxInt64),
		"wait of centuries":        WithWait(math.MaxInt64),
		"MaxHold of centuries":     WithMaxHold(math.MaxInt64),
		"interval of centuries":    WithRenewInterval(math.MaxInt64),
		"negative TTL":             WithTTL(-time.Second),
		"negative wait":            WithWait(-1),
		"no renewals":              WithMaxRenewals(0),
		"negative renewals":        WithMaxRenewals(-1),
		"MaxHold of 0":             WithMaxHold(0),
		"negative MaxHold":         WithMaxHold(-1),
		"negative margin":          WithMargin(-1),
		"margin of centuries":      WithMargin(math.MaxInt64),
		"margin of the TTL":        WithMargin(DefaultTTL),
		"prefix too long":          WithPrefix(strings.Repeat("p", MaxKeyLen+1)),
		"prefix not UTF-8":         WithPrefix("\xff"),
		"nil logger":               WithLogger(nil),
		"nil observer":             WithObserver(nil),
		"interval of 0":            WithRenewInterval(0),
		"interval below the least": WithRenewInterval(time.Millisecond - 1),
		"interval of the TTL":      WithRenewInterval(DefaultTTL),
		"interval of the validity": WithRenewInterval(validityOf(DefaultTTL)),
		"driver option not known":  WithDriverOption(1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(newFake(), o)
			wantErr(t, err, ErrInvalid, "New")
			_, err = New(newFake(), WithLogger(slog.Default()), o, WithTTL(DefaultTTL), WithWait(1), WithMaxRenewals(1),
				WithMaxHold(1), WithRenewInterval(time.Second))
			if !strings.HasPrefix(name, "interval of the") { // which a later one corrects
				wantErr(t, err, ErrInvalid, "New, with good options beside it")
			}

			lo, ok := o.(LockOption)
			if !ok && o != nil {
				return
			}
			f := newFake()
			l, err := New(f)
			if err != nil {
				t.Fatalf("New: %v, want nil", err)
			}
			defer l.Close()
			_, err = l.Lock(t.Context(), "k", lo, WithTTL(time.Second))
			wantErr(t, err, ErrInvalid, "Lock", ErrUnavailable, ErrNotAcquired)
			_, err = l.TryLock(t.Context(), "k", WithTTL(time.Second), lo)
			wantErr(t, err, ErrInvalid, "TryLock", ErrUnavailable, ErrNotAcquired)
			if n := len(f.sent(opAcquire)); n != 0 {
				t.Errorf("%d attempts, want none: the call is wrong", n)
			}
		})
	}
}

// The longest interval accepted has its first renewal before the lease ends.
func TestLongestRenewInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(100*time.Millisecond), WithRenewInterval(97*time.Millisecond-1))
		l := b.lock(t.Context(), "k")
		b.until(time.Second)
		if lostIsClosed(l) {
			t.Error("lost, want kept: its interval was accepted")
		}
		_, err := b.Lock(t.Context(), "other", WithTTL(MinTTL), WithoutRenewal())
		if err != nil {
			t.Errorf("Lock without renewal: %v, want nil: the interval is no concern of it", err)
		}
	})
	_, err := New(newFake(), WithTTL(100*time.Millisecond), WithRenewInterval(97*time.Millisecond))
	wantErr(t, err, ErrInvalid, "the first renewal would come with the end")
	l, err := New(newFake(), WithRenewInterval(time.Second))
	if err != nil {
		t.Fatalf("New: %v, want nil", err)
	}
	defer l.Close()
	_, err = l.Lock(t.Context(), "k", WithTTL(time.Second))
	wantErr(t, err, ErrInvalid, "a TTL not longer than the interval")
}

// A LockOption given to the constructor is the default of every call, and a call
// may say otherwise.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Minute), WithWait(2*time.Second), WithMaxHold(5*time.Second), WithoutRenewal(),
			WithPrefix("app:"), WithoutFencing())
		l := b.lock(t.Context(), "k")
		if c := b.store.sent(opAcquire)[0]; c.TTL != time.Minute || c.Key != "app:k" || c.Fencing || l.Key() != "k" || l.Token() != 0 {
			t.Errorf("request %+v for key %q with token %d, want the constructor's TTL, prefix and no fencing", c.Request, l.Key(), l.Token())
		}
		_, err := b.Lock(t.Context(), "k")
		wantErr(t, err, ErrNotAcquired, "the default wait")
		wantBetween(t, "Lock returned at", b.at(), 2*time.Second, 2*time.Second, "the default wait is over")
		_, err = b.Lock(t.Context(), "k", WithWait(time.Second))
		wantErr(t, err, ErrNotAcquired, "its own wait")
		wantBetween(t, "Lock returned at", b.at(), 3*time.Second, 3*time.Second, "its own wait is over")

		other := b.lock(t.Context(), "other", WithTTL(time.Second), WithMaxHold(time.Hour))
		if c := b.store.sent(opAcquire)[1]; c.TTL != time.Second {
			t.Errorf("TTL %v, want the call's own", c.TTL)
		}
		<-other.Lost()
		wantBetween(t, "not renewed, lost at", b.at(), 3988*time.Millisecond, 3988*time.Millisecond, "WithoutRenewal is a default, too")
		<-l.Lost()
		wantBetween(t, "lost at", b.at(), 5*time.Second, 5*time.Second, "the default MaxHold")

		// Each of these can be undone for one call.
		forever := b.lock(t.Context(), "unlimited", WithRenewal(), WithUnlimitedHold())
		_, err = b.Lock(t.Context(), "unlimited", WithWait(0))
		wantErr(t, err, ErrNotAcquired, "WithWait(0) is one attempt")
		wantBetween(t, "Lock returned at", b.at(), 5*time.Second, 5*time.Second, "WithWait(0) does not wait")
		endless := b.locking(t.Context(), "unlimited", WithUnboundedWait())
		b.until(5 * time.Minute)
		if endless.over() || lostIsClosed(forever) {
			t.Error("the wait is over or the lease is lost, want neither: the call undid the defaults")
		}
		b.unlock(forever)
		endless.wantLease(t)
	})
}

// The store counts whole milliseconds, rounded up.
func TestTTLIsWholeMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		for ttl, want := range map[time.Duration]time.Duration{
			100 * time.Millisecond:     100 * time.Millisecond,
			100*time.Millisecond + 1:   101 * time.Millisecond,
			1234567 * time.Microsecond: 1235 * time.Millisecond,
		} {
			l := b.lock(t.Context(), "k", WithTTL(ttl))
			if sent := b.store.sent(opAcquire); sent[len(sent)-1].TTL != want {
				t.Errorf("WithTTL(%v) asks for %v, want %v", ttl, sent[len(sent)-1].TTL, want)
			}
			b.unlock(l)
		}
	})
}

// Bad keys, owners and contexts are ErrInvalid before anything is sent.
func TestBadArguments(t *testing.T) {
	f := newFake()
	l, err := New(f, WithObserver(nobody))
	if err != nil {
		t.Fatalf("New: %v, want nil", err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		ctx context.Context
		key string
	}{
		"empty key":       {t.Context(), ""},
		"key too long":    {t.Context(), strings.Repeat("k", MaxKeyLen+1)},
		"key not UTF-8":   {t.Context(), "k\xff"},
		"empty owner":     {ContextWithOwner(t.Context(), ""), "k"},
		"owner too long":  {ContextWithOwner(t.Context(), strings.Repeat("o", maxOwnerLen+1)), "k"},
		"owner not UTF-8": {ContextWithOwner(t.Context(), "\xff"), "k"},
		"nil context":     {nil, "k"},
	} {
		for op, lock := range map[string]func(context.Context, string, ...LockOption) (*Lease, error){"Lock": l.Lock, "TryLock": l.TryLock} {
			_, err := lock(c.ctx, c.key)
			wantErr(t, err, ErrInvalid, fmt.Sprint(op, ": ", name), ErrUnavailable, ErrNotAcquired)
		}
	}
	if n := len(f.sent(opAcquire)); n != 0 {
		t.Errorf("%d attempts, want none: every call was wrong", n)
	}
	var none context.Context
	for _, key := range []string{"k", strings.Repeat("k", MaxKeyLen), "\x00{}\n", "ключ"} {
		lease, err := l.TryLock(ContextWithOwner(t.Context(), strings.Repeat("o", maxOwnerLen)), key)
		if err != nil {
			t.Fatalf("TryLock(%.10q): %v, want nil: 1 byte to 16 KiB of UTF-8", key, err)
		}
		for what, err := range map[string]error{"Unlock": lease.Unlock(none), "Renew": lease.Renew(none)} {
			wantErr(t, err, ErrInvalid, what+" without a context")
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v, want nil: the call without a context was none", err)
		}
	}
	_, err = New(nil)
	wantErr(t, err, ErrInvalid, "New without a driver")
}

// configured is a driver with options and settings of its own.
type configured struct {
	*fake
	got []driver.Config
	err error
}

func (d *configured) Configure(c driver.Config) (driver.Settings, error) {
	d.got = append(d.got, c)
	return driver.Settings{IDVersion: 8}, d.err
}

// A driver is configured once, with the options meant for it, and says how claim ids
// begin.
func TestConfigure(t *testing.T) {
	d := &configured{fake: newFake()}
	l, err := New(d, WithDriverOption("a"), WithTTL(time.Second), WithDriverOption(2))
	if err != nil {
		t.Fatalf("New: %v, want nil", err)
	}
	defer l.Close()
	if len(d.got) != 1 || fmt.Sprint(d.got[0].Options) != "[a 2]" || d.got[0].Logger == nil {
		t.Fatalf("configured with %+v, want once, with both options and a logger", d.got)
	}
	lease, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatalf("Lock: %v, want nil", err)
	}
	if owner := lease.Owner(); len(owner) != 38 || owner[14] != '8' || owner[36:] != ":1" {
		t.Errorf("owner %q, want a UUID of version 8, as the driver wants it, and a number", owner)
	}
	broken := errors.New("no such option")
	_, err = New(&configured{fake: newFake(), err: broken})
	wantErr(t, err, broken, "New fails with the driver's error")
}

// FuzzKeys: a key is taken if it is 1 byte to 16 KiB of UTF-8, the prefix not counted, and
// refused without asking the store if not.
func FuzzKeys(f *testing.F) {
	for _, s := range [][2]string{
		{"", "k"}, {"app:", ""}, {"", "\xff"}, {"\xc3", "\xa9"}, {"p", strings.Repeat("k", MaxKeyLen)}, {"", "{}\x00\n"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, prefix, key string) {
		driver := newFake()
		l, err := New(driver, WithPrefix(prefix))
		if !utf8.ValidString(prefix) || len(prefix) > MaxKeyLen {
			wantErr(t, err, ErrInvalid, "New")
			return
		}
		defer l.Close()
		lease, err := l.TryLock(t.Context(), key)
		if key == "" || !utf8.ValidString(key) || len(key) > MaxKeyLen {
			wantErr(t, err, ErrInvalid, "TryLock")
			if n := len(driver.log); n > 0 {
				t.Errorf("the store was sent %d commands", n)
			}
			return
		}
		if err != nil || lease.Key() != key || driver.held(prefix+key) == "" {
			t.Errorf("TryLock(%q) with prefix %q: %v", key, prefix, err)
			return
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
}
