// Package wake has the channel by which one goroutine wakes another.
package wake

// Signal is a channel that holds one: who sends does not wait, and who receives late misses
// nothing but repetitions. It is the C of a driver.Watch that embeds it.
type Signal chan struct{}

// New makes a Signal.
func New() Signal { return make(Signal, 1) }

// Send wakes the receiver, unless a signal is there already. On a nil Signal it does nothing.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// C receives.
func (s Signal) C() <-chan struct{} { return s }
