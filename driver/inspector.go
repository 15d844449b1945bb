package driver

import (
	"context"
	"iter"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Inspector is implemented by a driver that can look at the holder of a key, and take the key
// away. It recognises the locks of its own, and as far as it can those that other strategies and
// programs keep at the same place.
type Inspector interface {
	// Inspect returns who holds key. If key is free, Held is false. It changes nothing. It
	// returns an error that matches [ErrConflict] if the key holds something that is not a
	// lock.
	Inspect(ctx context.Context, key string) (Holder, error)
	// Keys goes through the keys that are held, or may be, and match a glob pattern: * stands
	// for any characters, ? for one, [abc] for one of these, and \ makes the next one plain.
	Keys(ctx context.Context, pattern string) iter.Seq2[string, error]
	// Break frees h.Key, whoever else has a share in it, if the grant that h.ID names still holds
	// it; otherwise it touches nothing and returns an error that matches [ErrLost]. The Locker
	// acquires and releases the key after it, so that waiters are woken. A driver whose queue
	// refuses that wakes the first waiter itself. For a key with permits, h is one claim, and Break
	// frees the permits of that claim only.
	Break(ctx context.Context, h Holder) error
}

// Holder describes who holds a key. Fields that the store does not know are zero.
type Holder struct {
	Key  string
	Held bool
	// ID names this grant of the key: the id of a claim, or the value of another library's lock,
	// which a later lock may have, too. It is "" for a value that is not recognised as a lock.
	ID string
	// Owner is ID unless the caller named an owner.
	Owner string
	// Strategy is the name of the strategy whose layout the lock has, or of another library:
	// "redisson". It is "" if any program may have written it.
	Strategy string
	// Metadata has the pairs that WithMetadata gave to the holder's Locker, or to its Lock.
	Metadata map[string]string
	Holds    int // re-entrant holds, if the store counts them
	// Limit is how many permits the key has, and Permits is how many of them are out. If the Holder
	// is one claim of permits (see [PermitInspector]), Permits is how many that claim has. Both are
	// 0 for a lock. The holder of a key with permits has no ID and no Owner: these are its claims'.
	Permits, Limit int
	// Token is the last fencing token that the store has issued, or reserved, for the key.
	Token int64
	// Since is the time of the grant, on the store's clock.
	Since time.Time
	// Remaining is the rest of the TTL; negative if the lock does not expire.
	Remaining time.Duration
	// Waiting is how many processes are known to wait. Processes that poll are not known.
	Waiting int
	// Queue has the owners that wait in turn, the next one first.
	Queue []string
}

// MetadataMark separates the metadata in a claim's id, if there is any, from the UUID and number
// before it.
const MetadataMark = "?"

var isClaim = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[48][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}:[0-9]+$`)

// MetadataOf returns the metadata in a claim's id, such as [Holder].ID or an element of
// [Holder].Queue; nil if there is none.
func MetadataOf(id string) map[string]string {
	claim, encoded, ok := strings.Cut(id, MetadataMark)
	if MayBeUnused(id) {
		encoded = strings.TrimPrefix(strings.TrimPrefix(encoded, StickyMark), "&")
		ok = encoded != ""
	}
	values, err := url.ParseQuery(encoded)
	if !ok || err != nil || !isClaim.MatchString(claim) {
		return nil // a name that somebody gave an owner, or another program's value
	}
	all := make(map[string]string)
	for name := range values {
		all[name] = values.Get(name)
	}
	return all
}
