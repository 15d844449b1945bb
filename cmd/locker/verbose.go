//go:build unix

package main

import (
	"fmt"
	"time"

	"github.com/distlock/locker"
)

// tellAgain is how often an outage that goes on is printed.
const tellAgain = 5 * time.Second

// verbose prints events for --verbose. Events come one after the other.
type verbose struct {
	failing bool      // to renew
	told    time.Time // when that was printed last
}

// inWords returns the line of an event; "" if the command prints it anyway.
func (v *verbose) inWords(e locker.Event) string {
	took := e.Duration.Round(time.Millisecond)
	switch e.Kind {
	case locker.EventWaiting:
		return fmt.Sprintf("waiting for %q (%s)", e.Key, e.Strategy)
	case locker.EventAcquired:
		return fmt.Sprintf("got %q (%s) after %v, token %d", e.Key, e.Strategy, took, e.Token)
	case locker.EventReleased:
		return fmt.Sprintf("gave %q back after %v", e.Key, took)
	case locker.EventRenewFailed:
		if v.failing && time.Since(v.told) < tellAgain {
			return ""
		}
		v.failing, v.told = true, time.Now()
		return fmt.Sprintf("renewing %q failed, and is tried again: %v", e.Key, e.Err)
	case locker.EventRenewed:
		if v.failing {
			v.failing = false
			return fmt.Sprintf("%q is renewed again", e.Key)
		}
	case locker.EventAtRisk:
		return fmt.Sprintf("%q is in danger: %v", e.Key, e.Err)
	case locker.EventReleaseRequested:
		return fmt.Sprintf("somebody asks for %q", e.Key)
	case locker.EventNode:
		if e.Err == nil {
			return fmt.Sprintf("node %s answers again", e.Node)
		}
		return fmt.Sprintf("node %s: %v", e.Node, e.Err)
	}
	return ""
}
