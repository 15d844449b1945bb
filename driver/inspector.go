package driver

import (
	"context"
	"iter"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Inspector is implemented by a driver that can tell who holds a key, whoever that is, and
// take the key away. Besides the locks of its own it tells of those that other strategies
// and programs keep at the same place, as far as it recognises them.
type Inspector interface {
	// Inspect tells who holds key. If it is free, Held is false. It changes nothing. It
	// returns an error that matches [ErrConflict] if the key holds something that is not a
	// lock.
	Inspect(ctx context.Context, key string) (Holder, error)
	// Keys goes through the keys that are held, or may be, and match a glob pattern: * is
	// any characters, ? is one, [abc] is one of these, and \ makes the next one plain.
	Keys(ctx context.Context, pattern string) iter.Seq2[string, error]
	// Break frees h.Key, whoever else has a share in it, if the grant that h.ID names still
	// holds it; otherwise it touches nothing and returns an error that matches [ErrLost].
	// The Locker acquires and releases the key after it, so that waiters are woken. A driver
	// whose queue refuses that tells the first waiter itself.
	Break(ctx context.Context, h Holder) error
}

// Holder is who holds a key, as far as the store tells. What it does not tell is zero.
type Holder struct {
	Key  string
	Held bool
	// ID is what tells this grant from others at the key: the id of a claim; of another
	// library's lock its value, which a later one may have as well. It is "" for what is not
	// recognised as a lock.
	ID string
	// Owner is ID unless the caller named an owner.
	Owner string
	// Strategy is the name of the one whose layout the lock has, or of another library:
	// "redisson". It is "" if any program may have put it there.
	Strategy string
	// Metadata is what the holder's Locker was given by WithMetadata.
	Metadata map[string]string
	Holds    int // re-entrant holds, if the store counts them
	// Token is the last fencing token that the store has issued, or reserved, for the key.
	Token int64
	// Since is when the store granted the lock, on its clock.
	Since time.Time
	// Remaining is what is left of the TTL; negative if the lock does not expire.
	Remaining time.Duration
	// Waiting is how many processes are known to wait. Those that poll are not.
	Waiting int
	// Queue names those that wait in turn, as Owner does: the next one first.
	Queue []string
}

// MetadataMark is what separates the metadata in a claim's id, if there is any, from what
// is before it.
const MetadataMark = "?"

var isClaim = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[48][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}:[0-9]+$`)

// MetadataOf is the metadata in a claim's id.
func MetadataOf(id string) map[string]string {
	claim, encoded, ok := strings.Cut(id, MetadataMark)
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
