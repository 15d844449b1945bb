package strategy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each parameter about locks makes an option: one that lockOptions forgets would be read and ignored.
func TestEveryParameterMakesAnOption(t *testing.T) {
	values := map[string]string{
		"fencing": "off", "hand_over": "off", "loss_detection": "on", "margin": "1s", "max_hold": "1h", "max_renewals": "4", "prefix": "app:",
		"renew_interval": "2s", "renewal": "off", "replica_acks": "1", "replica_acks_timeout": "1s&replica_acks=1", "sticky": "250ms", "ttl": "10s", "wait": "0s",
	}
	for _, name := range strings.Fields(lockParams) {
		require.Contains(t, values, name, "a value for the new parameter, other than its default")
		p, err := testRegistry(t).plan(Config{URL: "acks+redis://h?" + name + "=" + values[name]})
		require.NoError(t, err, name)
		require.Len(t, p.opts, 1, "the options of %s", name)
	}
}
