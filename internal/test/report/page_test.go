//go:build unix

package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSubjectsTable: our strategies are those of a commit that can be found again, the others of a version.
func TestSubjectsTable(t *testing.T) {
	at := commit(t.Context())
	require.Regexp(t, `^([0-9a-f]{7,}|unknown)$`, at)
	table := subjectsTable([]Subject{{Name: "ours"}, {Name: "theirs", Module: "their/module"}}, at, func(string) string { return "v1.2.3" })
	require.Contains(t, table, "| ours | "+at+" |")
	require.Contains(t, table, "| theirs | v1.2.3 |")
}
