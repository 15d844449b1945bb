package strategy

import (
	"testing"
	"time"
)

func TestTTLOfCenturiesIsRefused(t *testing.T) {
	const centuries = 290 * 365 * 24 * time.Hour
	invalid(t, Config{Strategy: "memory", TTL: centuries}, "ttl", "24h")
	invalid(t, Config{URL: "memory://?ttl=" + centuries.String()}, "ttl", "24h")
	invalid(t, Config{Strategy: "memory", TTL: 24*time.Hour + 1}, "ttl", "24h")
}
