// Package glob matches keys with the patterns of [driver.Inspector].
package glob

import (
	"fmt"
	"path"
	"strings"

	"github.com/distlock/locker/driver"
)

// noSlash hides slashes: * of path.Match does not match them.
var noSlash = strings.NewReplacer("/", "\x00")

// Compile returns a function that reports whether a key matches pattern. A malformed pattern is
// driver.ErrInvalid.
func Compile(pattern string) (matches func(key string) bool, err error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("%w: the pattern %q: %w", driver.ErrInvalid, pattern, err)
	}
	pattern = noSlash.Replace(pattern)
	return func(key string) bool {
		ok, _ := path.Match(pattern, noSlash.Replace(key))
		return ok
	}, nil
}
