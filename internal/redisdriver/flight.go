package redisdriver

import (
	"context"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// flight is a command and what became of it.
type flight struct {
	script *Script
	req    driver.Request
	in     input
	run    func() (any, error) // sends the command, where that is not the lane's way

	// The words that in points to.
	fence, channel, publish string
	ttl, retention          int64

	cmd   noRetry
	made  redis.Cmd // the place of cmd
	reply any
	err   error
	done  chan struct{} // receives when the wait is over; holds one

	// Guarded by the lane's mutex until then.
	state          flightState
	place          int             // in the queue, counted from the lane's first command
	before, behind *flight         // of those that wait
	end            time.Time       // of its wait; zero: none
	locker         context.Context // by whose end it ends, too; or nil
	left           error           // why its caller has left
	over           chan struct{}   // closed when the answer is there; made for a caller that leaves a command on its way
	until          time.Time       // a command that has no answer by then never gets one
}

var flights = sync.Pool{New: func() any { return &flight{done: make(chan struct{}, 1)} }}

func newFlight(run func() (any, error)) *flight {
	f := flights.Get().(*flight)
	f.run = run
	return f
}

// free gives f back, once its caller has the answer, or it was not sent.
func (f *flight) free() {
	*f = flight{done: f.done, in: f.in[:0]}
	flights.Put(f)
}

type flightState uint8

const (
	flightQueued flightState = iota
	flightSent
	flightAnswered
	flightLeft // by its caller: it is on its way, or was not sent
)
