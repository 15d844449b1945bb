package strategies

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A server is sent no comments of the scripts of all strategies, and knows each by the hash of
// what it is sent.
func TestScriptsAreSentWithoutComments(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	sources := redisconn.Sources()
	names := make(map[string]bool)
	for sha, source := range sources {
		names[redisconn.ScriptName(sha)] = true
		require.Equal(t, redisconn.ScriptName(sha), redisconn.ScriptName(source))
		for line := range strings.Lines(source) {
			require.NotRegexp(t, `^(\s|--)`, line, "a blank line, indentation or a comment")
		}
		require.NotRegexp(t, `\[=*\[|\]=*\]`, source, "lines of a long string are no comments and keep their blanks")
		require.NotRegexp(t, `(?m)\\$`, source, "a string goes on in the next line, which keeps its blanks")
		sum := sha1.Sum([]byte(source))
		require.Equal(t, sha, hex.EncodeToString(sum[:]))
		loaded, err := rdb.ScriptLoad(t.Context(), source).Result()
		require.NoError(t, err, source)
		require.Equal(t, sha, loaded)
	}
	for _, name := range []string{"acquire", "renew", "release", "set holds", "inspect", "break", "confirm", "join"} {
		require.Contains(t, names, name)
	}
}
