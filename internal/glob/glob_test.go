package glob_test

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/glob"
)

// pages has two keys a page; a position is an index.
func pages(all ...string) func(string, func(string)) (string, error) {
	return func(from string, add func(string)) (string, error) {
		at, _ := strconv.Atoi(from)
		for _, key := range all[at:min(at+2, len(all))] {
			add(key)
		}
		if at+2 > len(all) {
			return "", nil
		}
		return strconv.Itoa(at + 2), nil
	}
}

func TestKeys(t *testing.T) {
	all := pages("a", "a/b", "a/b", "a/b/c", "b", "[")
	for pattern, want := range map[string][]string{
		"*":    {"a", "a/b", "a/b/c", "b", "["},
		"a?b":  {"a/b"},
		"a/*":  {"a/b", "a/b/c"},
		"[ab]": {"a", "b"},
		`\[`:   {"["},
		"":     nil,
	} {
		keys := glob.Keys(pattern, all)
		for range 2 { // it begins anew
			var got []string
			for key, err := range keys {
				require.NoError(t, err, pattern)
				got = append(got, key)
			}
			require.Equal(t, want, got, pattern)
		}
	}
	for key, err := range glob.Keys("*", all) {
		require.NoError(t, err)
		require.Equal(t, "a", key)
		break
	}
}

func TestKeysRefusesPatterns(t *testing.T) {
	for _, pattern := range []string{"[", "[]", `\`, "a[b-", "a/[b"} {
		for _, err := range glob.Keys(pattern, pages()) {
			require.ErrorIs(t, err, driver.ErrInvalid, pattern)
			require.ErrorIs(t, err, path.ErrBadPattern, pattern)
		}
	}
}

func TestKeysEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	var errs []error
	for _, err := range glob.Keys("*", func(from string, add func(string)) (string, error) {
		add("a")
		if from == "" {
			return "next", nil
		}
		return "", broken
	}) {
		errs = append(errs, err)
	}
	require.True(t, slices.Equal([]error{nil, broken}, errs), "want a key and the error, got %v", errs)
}
