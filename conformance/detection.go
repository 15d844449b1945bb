package conformance

import (
	"strconv"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

var detectionCases = group("signals", []Case{
	{Name: "BreakIsDetected", Rules: []string{"R27"}, Needs: Capabilities{LossDetection: true, Admin: true, Drivers: true}, Test: testBreakIsDetected,
		Contract: "with WithLossDetection a holder that listens for no signals learns long before its next renewal that another driver has broken its lock"},
})

// testBreakIsDetected needs no Breaker, as ChangedKeyIsNoticed does.
func testBreakIsDetected(t *T) {
	a, d := t.Locker(locker.WithLossDetection(), locker.WithTTL(heardTTL)), t.driver()
	inspector, ok := d.Driver.(driver.Inspector)
	if !ok {
		t.Fatalf("Admin is claimed, and the driver is no driver.Inspector")
	}
	for i := range 3 {
		key := t.Key(strconv.Itoa(i))
		lease := t.Lock(a, key)
		end := lease.Deadline()
		t.Eventually(t.Timing().Patience, "the lock is renewed once it is watched", func() bool { return lease.Deadline().After(end) })
		h, err := inspector.Inspect(t.Context(), key)
		t.NoError(err, "Inspect")
		t.NoError(inspector.Break(t.Context(), h), "Break")
		t.Ends(lease.Lost(), t.Timing().Patience, "Lost of a lock that another driver has broken")
		t.Is(lease.Err(), locker.ErrLost)
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	}
}
