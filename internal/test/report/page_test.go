//go:build unix

package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSubjectsTable: our strategies are those of a commit that can be found again, the others of a version.
func TestSubjectsTable(t *testing.T) {
	at := Commit(t.Context())
	require.Regexp(t, `^([0-9a-f]{7,}|unknown)$`, at)
	table := subjectsTable([]Subject{{Name: "ours"}, {Name: "theirs", Module: "their/module"}}, at, func(string) string { return "v1.2.3" })
	require.Contains(t, table, "| ours | "+at+" |")
	require.Contains(t, table, "| theirs | v1.2.3 |")
}

// TestReasonOfALongWait: the page gives the reason where the key of a dead holder is free later than its TTL, and no
// reason where it is free in time.
func TestReasonOfALongWait(t *testing.T) {
	c := Case{Why: map[string]string{"slow": "its lease is longer.", "prompt": "nothing."}}
	page := c.reasons([]Outcome{
		{Subject: Subject{Name: "slow"}, Died: true, Next: TTL + time.Second},
		{Subject: Subject{Name: "prompt"}, Died: true, Next: TTL - time.Second/10},
	})
	require.Equal(t, "\n- **slow**: its lease is longer.\n", page)
}
