package uuid

import (
	"strings"
	"testing"
)

// Ids are UUIDs of the version asked for, and differ.
func TestNew(t *testing.T) {
	seen := make(map[string]bool)
	for _, version := range []int{4, 8} {
		for range 1000 {
			id := New(version)
			if len(id) != 36 || int(id[14]-'0') != version || !strings.ContainsRune("89ab", rune(id[19])) || seen[id] {
				t.Fatalf("id %q, want a fresh UUID of version %d", id, version)
			}
			for _, i := range []int{8, 13, 18, 23} {
				if id[i] != '-' {
					t.Fatalf("id %q, want a dash at %d", id, i)
				}
			}
			seen[id] = true
		}
	}
}
