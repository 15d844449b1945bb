package redisdriver

import (
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// flight is a command and what became of it.
type flight struct {
	script *Script
	req    driver.Request
	in     input
	run    func() (any, error) // sends the command, where that is not the lane's way

	fence          string // the words that in points to
	ttl, retention int64

	cmd   noRetry
	reply any
	err   error
	done  chan struct{} // receives when the answer is there; holds one
	timer *time.Timer   // for who waits

	// Guarded by the lane's mutex.
	state flightState
	over  chan struct{} // closed when the answer is there; made for a caller that leaves
	until time.Time     // a command that has no answer by then never gets one
}

var flights = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &flight{done: make(chan struct{}, 1), timer: timer}
}}

func newFlight(run func() (any, error)) *flight {
	f := flights.Get().(*flight)
	f.run = run
	return f
}

// free gives f back, once it was answered and its caller has the answer.
func (f *flight) free() {
	*f = flight{done: f.done, timer: f.timer, in: f.in[:0]}
	flights.Put(f)
}

type flightState uint8

const (
	flightQueued flightState = iota
	flightSent
	flightAnswered
	flightLeft // by its caller
)
