package postgres_test

import (
	"testing"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/postgres"
)

type lineHarness struct{ *harness }

func (h lineHarness) NewDriver() (driver.Driver, error) {
	return postgres.NewLineDriver(h.s.pool(h.tb, "&pool_max_conns=4&pool_max_conn_idle_time=1s&pool_health_check_period=500ms")), nil
}

func (h lineHarness) Capabilities() conformance.Capabilities {
	c := h.harness.Capabilities()
	c.Fair = true
	return c
}

func TestLineConformance(t *testing.T) {
	conformance.Run(t, conformance.OfDriver(func(tb testing.TB) conformance.DriverHarness { return lineHarness{newHarness(tb).(*harness)} }))
}
