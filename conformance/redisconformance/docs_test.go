package redisconformance_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/stretchr/testify/require"
)

// docs/faults.md names every case of the groups about faults, and no page names a case that
// is not there.
func TestDocs(t *testing.T) {
	cases := slices.Concat(
		conformance.Cases(),
		redisconformance.Strategy{}.Cases(),
		redisconformance.Strategy{Topology: redisconformance.Cluster}.Cases(),
		redisconformance.Quorum{}.Cases(),
	)
	faults, err := os.ReadFile("../../docs/faults.md")
	require.NoError(t, err)
	var known, lockers []string // lockers: what package locker decides
	for _, c := range cases {
		at := c.Group + "/" + c.Name
		known = append(known, at)
		if c.Locker {
			lockers = append(lockers, at)
		}
		if slices.Contains([]string{"failure", "outage", "faults", "minority", "failover", "slots"}, c.Group) {
			require.Contains(t, string(faults), "`"+at+"`")
		}
	}
	for name, pattern := range map[string]string{
		"faults.md": "`([a-z-]+/[A-Z][A-Za-z]+)`",
		"stores.md": "`([a-z-]+/[A-Z][A-Za-z]+)`",
		"driver.md": `\b([a-z-]+/(?:[A-Za-z]*\\\*|[A-Z][A-Za-z]+))`,
	} {
		doc, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(doc), -1)
		require.NotEmpty(t, found)
		for _, m := range found {
			prefix, any := strings.CutSuffix(m[1], `\*`)
			require.True(t, slices.ContainsFunc(known, func(k string) bool {
				return k == m[1] || any && strings.HasPrefix(k, prefix)
			}), "docs/%s names %s, which is no case", name, m[1])
			require.False(t, name == "driver.md" && slices.Contains(lockers, m[1]), "docs/%s names %s, which no driver can break", name, m[1])
		}
	}
}
