package simulation

import (
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// audit watches what a Locker sends, before any fault of the way.
type audit struct {
	w        *world
	mu       sync.Mutex
	asked    map[string]string        // the key of each claim that an Acquire named
	released map[string]time.Duration // when a Release was sent for a claim
	denied   map[string]time.Duration // when a renewal of a claim was answered with ErrLost
}

func newAudit(w *world) *audit {
	return &audit{w: w, asked: map[string]string{}, released: map[string]time.Duration{}, denied: map[string]time.Duration{}}
}

// acquire wants an id that was used by no attempt for another key, and by none once a release was
// sent for it. (The injector repeats an attempt, with its id.)
func (a *audit) acquire(c driver.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.released[c.ID]; ok {
		a.w.violate("an Acquire of %s was sent with the id of a claim that a release was sent for", c.Key)
	}
	if key, ok := a.asked[c.ID]; ok && key != c.Key {
		a.w.violate("an Acquire of %s was sent with the id of an attempt for %s", c.Key, key)
	}
	a.asked[c.ID] = c.Key
}

// renew wants no renewal of a claim that was given back, that the store has denied, or that is kept and nobody
// uses. One that begins in the same instant may have begun before.
func (a *audit) renew(locker int, c driver.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.w.now()
	if at, ok := a.released[c.ID]; ok && at < now {
		a.w.violate("a renewal of %s was sent %v after the claim's release", c.Key, now-at)
	}
	if at, ok := a.denied[c.ID]; ok && at < now {
		a.w.violate("a renewal of %s was sent %v after the store had denied one", c.Key, now-at)
	}
	if c.Limit == 0 && a.w.isUnused(locker, c.Key) {
		a.w.violate("a renewal of %s was sent, which nobody in locker %d uses", c.Key, locker)
	}
}

func (a *audit) renewed(c driver.Claim, err error) {
	if errors.Is(err, driver.ErrLost) {
		a.first(a.denied, c.ID)
	}
}

func (a *audit) release(c driver.Claim) { a.first(a.released, c.ID) }

// first notes when something happened to a claim for the first time.
func (a *audit) first(times map[string]time.Duration, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := times[id]; !ok {
		times[id] = a.w.now()
	}
}
