package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const source = `package p

func (t *T[K]) often() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.odd {
		t.mu.RLock()
	}
}

func once() {
	mu.Lock()
}
`

// A function counts if every pair runs it, and so do the mutexes in those of its blocks that ran.
func TestPerPair(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	write("p.go", source)
	read := func(often, odd, once string) profile {
		p, err := parseProfile(write("profile", "mode: atomic\n"+
			module+"/p.go:3.24,6.11 3 "+often+"\n"+
			module+"/p.go:6.11,8.3 1 "+odd+"\n"+
			module+"/p.go:11.13,13.2 1 "+once+"\n"+
			itself+"/main.go:1.1,2.2 1 9\n"))
		require.NoError(t, err)
		return p
	}
	all, err := perPair(dir, read("3010", "1005", "1").less(read("10", "5", "1")))
	require.NoError(t, err)
	require.Equal(t, []function{{file: "p.go", line: 3, name: "T.often", calls: 3, locks: 4}}, all)
}

// A sum is too large if one of its numbers is.
func TestMost(t *testing.T) {
	t.Parallel()
	most, err := parseSum("109,21,14")
	require.NoError(t, err)
	require.Equal(t, sum{109, 21, 14}, most)
	require.False(t, sum{109, 21, 14}.exceeds(most))
	for _, more := range []sum{{110, 1, 1}, {1, 22, 1}, {1, 1, 15}} {
		require.True(t, more.exceeds(most), more)
	}
	for _, wrong := range []string{"", "109", "109,21", "109,21,14,7", "109,21,14 7", "109,21,x"} {
		_, err := parseSum(wrong)
		require.Error(t, err, wrong)
	}
}
