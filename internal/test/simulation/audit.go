package simulation

import (
	"errors"
	"sync"

	"github.com/distlock/locker/driver"
)

// audit watches what a Locker sends, before any fault of the way.
type audit struct {
	w        *world
	mu       sync.Mutex
	asked    map[string]string // the key of each claim that an Acquire named
	released map[string]bool   // claims that a Release was sent for
	denied   map[string]bool   // claims whose renewal was answered with ErrLost
}

func newAudit(w *world) *audit {
	return &audit{w: w, asked: map[string]string{}, released: map[string]bool{}, denied: map[string]bool{}}
}

// acquire wants an id that was used by no attempt for another key, and by none once a release was
// sent for it. (The injector repeats an attempt, with its id.)
func (a *audit) acquire(c driver.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.released[c.ID] {
		a.w.violate("an Acquire of %s was sent with the id of a claim that a release was sent for", c.Key)
	}
	if key, ok := a.asked[c.ID]; ok && key != c.Key {
		a.w.violate("an Acquire of %s was sent with the id of an attempt for %s", c.Key, key)
	}
	a.asked[c.ID] = c.Key
}

// renew wants no renewal of a claim that was given back, or that the store has denied.
func (a *audit) renew(c driver.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.released[c.ID] {
		a.w.violate("a renewal of %s was sent after the claim's release", c.Key)
	}
	if a.denied[c.ID] {
		a.w.violate("a renewal of %s was sent after the store had denied one", c.Key)
	}
}

func (a *audit) renewed(c driver.Claim, err error) {
	if !errors.Is(err, driver.ErrLost) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.denied[c.ID] = true
}

func (a *audit) release(c driver.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.released[c.ID] = true
}
