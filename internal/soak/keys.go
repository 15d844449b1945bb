package soak

import (
	"fmt"
	"strings"
)

// keyText is the n-th key. Each has a twin that a strategy which trims, cuts or folds
// keys takes for it.
func keyText(n uint16) string {
	pair, odd := n/2, n%2
	twins := [...][2]string{
		{"k%d", "K%d"},
		{"k%d", "k%d "},
		{"a:k%d", "b:k%d"},
		{"k%d\x00a", "k%d\x00b"},
		{"k%d\U0001F512{x}a", "k%d\U0001F512{x}b"},
		{"k%d" + strings.Repeat("-", 1100) + "a", "k%d" + strings.Repeat("-", 1100) + "b"},
	}
	return fmt.Sprintf(twins[int(pair)%len(twins)][odd], pair)
}

// keyName is what reports call the n-th key.
func keyName(n uint16) string { return fmt.Sprintf("k%d %.20q", n, keyText(n)) }
