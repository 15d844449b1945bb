package glob_test

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/glob"
)

func TestCompile(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"*", "a/b", true},
		{"a?b", "a/b", true},
		{"a/*", "a/b/c", true},
		{"a/*", "ab", false},
		{"[ab]", "b", true},
		{"[^/]", "/", false},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{"", "", true},
		{"", "a", false},
	} {
		matches, err := glob.Compile(c.pattern)
		require.NoError(t, err, c.pattern)
		require.Equal(t, c.want, matches(c.key), "%q matches %q", c.pattern, c.key)
	}
	for _, pattern := range []string{"[", "[]", `\`, "a[b-", "a/[b"} {
		_, err := glob.Compile(pattern)
		require.ErrorIs(t, err, driver.ErrInvalid, pattern)
		require.ErrorIs(t, err, path.ErrBadPattern, pattern)
	}
}
