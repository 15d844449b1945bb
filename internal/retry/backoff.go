// Package retry tries things again: [Backoff] has the pauses between tries, and a [Queue] runs
// tasks in the background until they succeed.
package retry

import (
	"math/rand/v2"
	"time"
)

// Backoff makes pauses at random between least and a bound that doubles from 2 × least to most.
// Its zero value is ready.
type Backoff struct{ cur time.Duration }

// Next returns the next pause. most is no less than least.
func (b *Backoff) Next(least, most time.Duration) time.Duration {
	b.cur = min(max(2*b.cur, 2*least), most)
	return least + rand.N(b.cur-least+1)
}
