package signaltest

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
)

// LockerID is the id of a Locker that listens.
const LockerID = "0194f2a4-58c1-4d7e-9b1a-5f3c2e1d0a9b"

// soon is how long a signal may take on a busy machine.
const soon = 30 * time.Second

// Listen listens for the signals to a Locker.
func Listen(t *testing.T, d driver.Signaller, locker string) driver.Listener {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	l, err := d.Listen(ctx, locker)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Heard returns the next signal.
func Heard(t *testing.T, l driver.Listener) driver.Signal {
	t.Helper()
	select {
	case s, ok := <-l.C():
		if !ok {
			t.Fatal("C was closed")
		}
		return s
	case <-time.After(soon):
		t.Fatal("no signal came")
		return driver.Signal{}
	}
}
