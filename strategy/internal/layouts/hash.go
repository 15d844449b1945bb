package layouts

import (
	"regexp"
	"strconv"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
)

var (
	totalPattern = regexp.MustCompile(`^\d+$`)
	sharePattern = regexp.MustCompile(`^\d+ (\d+) (\d+)$`)
	kindPattern  = regexp.MustCompile(`^([a-z]+) (\S+) `)
)

// hashLock has the content of a hash lock; claim.lua in internal/hashlock has the fields.
type hashLock struct {
	owner  string
	holds  int
	claim  string // one that holds it, the same at each look while it is alive
	shares int    // fields of claims beside the owner's
	issued int64  // the greatest token in them
	kind   string // how its release wakes waiters; "" if it does not say
	token  string // in the field that says so
}

// readHash reads a hash; ok is false if it is no lock.
func readHash(e *redisdriver.Entry) (l hashLock, ok bool) {
	owners := 0
	for field, value := range e.Fields {
		share := sharePattern.FindStringSubmatch(value)
		switch {
		case field == "":
		case totalPattern.MatchString(value):
			owners++
			l.owner = field
		case share != nil && (claim4.MatchString(field) || claim8.MatchString(field)):
			l.shares++
			l.issued = max(l.issued, number(share[2]))
			if alive := number(share[1]) > e.Now.UnixMilli(); alive && (l.claim == "" || field < l.claim) {
				l.claim = field
			}
		default:
			return l, false // application data, or another kind of lock
		}
	}
	if owners != 1 {
		return l, false
	}
	l.holds, _ = strconv.Atoi(e.Fields[l.owner])
	if l.claim == "" {
		l.claim = l.owner
	}
	if m := kindPattern.FindStringSubmatch(e.Fields[""]); m != nil {
		l.kind, l.token = m[1], m[2]
	}
	return l, true
}

// describe sets the holder. counter is the key's fencing counter.
func (l hashLock) describe(h *driver.Holder, counter int64) {
	h.ID, h.Owner, h.Holds = l.claim, l.owner, l.holds
	switch {
	case l.issued > 0:
		h.Token = l.issued
	case l.kind == "" || l.token == "-":
		h.Token = counter
	default:
		h.Token = number(l.token)
	}
}

// isHashreentrants recognises a hash whose release wakes by pub/sub, or that has claims of ours.
func isHashreentrants(e *redisdriver.Entry, h *driver.Holder) bool {
	l, ok := readHash(e)
	if !ok || l.kind == "" && l.shares == 0 && !claim8.MatchString(l.owner) {
		return false
	}
	l.describe(h, e.Counter)
	return true
}

// isRedissons recognises a hash of Redisson's: one field, and it expires.
func isRedissons(e *redisdriver.Entry, h *driver.Holder) bool {
	l, ok := readHash(e)
	if !ok || !redissons.MatchString(l.owner) || h.Remaining < 0 {
		return false
	}
	h.ID, h.Owner, h.Holds = l.claim, l.owner, l.holds
	return true
}
