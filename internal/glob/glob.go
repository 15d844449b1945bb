// Package glob goes through the keys of a store that match a pattern, as [driver.Inspector] has it.
package glob

import (
	"fmt"
	"iter"
	"path"
	"strings"

	"github.com/distlock/locker/driver"
)

// noSlash hides slashes: * of path.Match does not match them.
var noSlash = strings.NewReplacer("/", "\x00")

// Keys implements Keys of [driver.Inspector] by pages: page passes the keys behind a position to add, and returns the
// next position, "" at the end. The first position is "". A key that is added twice in a row counts once. No page is
// under way while the caller has a key.
func Keys(pattern string, page func(from string, add func(key string)) (next string, err error)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if _, err := path.Match(pattern, ""); err != nil {
			yield("", fmt.Errorf("%w: the pattern %q: %w", driver.ErrInvalid, pattern, err))
			return
		}
		pattern, last := noSlash.Replace(pattern), ""
		for from, first := "", true; first || from != ""; first = false {
			var keys []string
			next, err := page(from, func(key string) {
				if ok, _ := path.Match(pattern, noSlash.Replace(key)); ok && key != last {
					keys, last = append(keys, key), key
				}
			})
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range keys {
				if !yield(key, nil) {
					return
				}
			}
			from = next
		}
	}
}
