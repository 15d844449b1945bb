package locker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Validate refuses what Lock refuses, and asks nobody.
func TestValidate(t *testing.T) {
	synctest.Test(t, testValidate)
}

func testValidate(t *testing.T) {
	b := newBench(t, plain, WithPrefix("app:"), WithRenewInterval(time.Second))
	b.lock(t.Context(), "held", WithTTL(time.Minute))
	for name, c := range map[string]struct {
		l    Locker
		key  string
		opts []LockOption
		bad  bool
	}{
		"good":                         {b.Client, "k", []LockOption{WithTTL(2 * time.Second)}, false},
		"held":                         {b.Client, "held", nil, false},
		"of the library's own name":    {b.Client, "locker:k", nil, false}, // with its prefix it is not
		"no Locker":                    {nil, "k", nil, true},
		"no key":                       {b.Client, "", nil, true},
		"a long key":                   {b.Client, strings.Repeat("k", MaxKeyLen+1), nil, true},
		"a nil option":                 {b.Client, "k", []LockOption{nil}, true},
		"a long TTL":                   {b.Client, "k", []LockOption{WithTTL(48 * time.Hour)}, true},
		"a TTL below the interval":     {b.Client, "k", []LockOption{WithTTL(time.Second)}, true},
		"wrapped, good":                {wrapped{b.Client}, "locker:k", []LockOption{WithTTL(time.Second)}, false},
		"wrapped, no key":              {wrapped{b.Client}, "", nil, true},
		"wrapped, a TTL out of bounds": {wrapped{b.Client}, "k", []LockOption{WithTTL(1)}, true},
	} {
		if err := Validate(c.l, c.key, c.opts...); c.bad {
			wantErr(t, err, ErrInvalid, name)
		} else if err != nil {
			t.Errorf("%s: %v, want nil", name, err)
		}
	}
	sent := len(b.store.sent(opAcquire))
	if _, err := b.Lock(ended(t), "k"); err == nil {
		t.Error("Lock under a context that has ended succeeded")
	}
	_ = b.Close()
	if n := len(b.events()[EventNotAcquired]); n != 1 || sent != 1 {
		t.Errorf("%d events of calls that failed and %d attempts, want 1 and 1: Validate is neither", n, sent)
	}
	if err := Validate(b.Client, "k"); err != nil {
		t.Errorf("after Close: %v, want nil: that is no fault of the arguments", err)
	}
}
