package layouts

import (
	"regexp"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
)

// BlpopGrant is how long a lock lasts that a release of blpop has handed over, at most the
// TTL. A process in the queue that is silent for as long is taken to be dead.
const BlpopGrant = 2 * time.Second

// isBlpops recognises a hash whose release hands the lock to the queue.
func isBlpops(e *redisdriver.Entry, h *driver.Holder) bool {
	l, ok := readHash(e)
	if !ok || l.kind != "blpop" {
		return false
	}
	l.describe(h, e.Counter)
	return true
}

var placePattern = regexp.MustCompile(`(?s)^\d+ (\S+) \d+ (\d+) \d \d+ \d+ (.*)$`)

// blpopQueue returns those in blpop's queue that are alive, the first one first; queue.lua
// has the fields.
func blpopQueue(e *redisdriver.Entry) (all []string) {
	for inbox := e.Queue[">"]; inbox != "" && len(all) < len(e.Queue); inbox = e.Queue[">"+inbox] {
		place := placePattern.FindStringSubmatch(e.Queue[inbox])
		if place == nil || e.Now.UnixMilli()-number(place[2]) >= BlpopGrant.Milliseconds() {
			continue
		}
		if owner := place[3]; owner != "" {
			all = append(all, owner)
		} else {
			all = append(all, place[1])
		}
	}
	return all
}
