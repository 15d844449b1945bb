package soak

import "time"

// instant is a moment on the monotonic clock that all processes of the machine
// share, in nanoseconds.
type instant int64

func (a instant) add(d time.Duration) instant   { return a + instant(d) }
func (a instant) since(b instant) time.Duration { return time.Duration(a - b) }

// epoch is one moment on the clock of this process and on the shared one.
var epoch = func() (e struct {
	local  time.Time
	shared instant
}) {
	// Between two looks at the local clock; the shorter that took, the better.
	best := time.Hour
	for range 100 {
		before := time.Now()
		shared := sharedClock()
		if took := time.Since(before); took < best {
			best, e.local, e.shared = took, before.Add(took/2), shared
		}
	}
	return e
}()

func now() instant { return at(time.Now()) }

// at is t on the shared clock.
func at(t time.Time) instant { return epoch.shared.add(t.Sub(epoch.local)) }
