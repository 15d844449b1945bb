package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoPassword: no error has a password in it, wherever the URL has it and however wrong the URL is.
func TestNoPassword(t *testing.T) {
	t.Parallel()
	for _, u := range []string{
		"redis:h?password=pa55", "setnx+redis:/h?password=pa55", "setnx+redis:/u:pa55@h", "u:pa55@h:6379",
		"setnx+redis://u:pa55@127.0.0.1:1", "setnx+redis://u:pa55@127.0.0.1:notaport", "setnx+redis://:pa55/x@127.0.0.1:1", "setnx+redis://u:pa55 word@127.0.0.1:1",
		"setnx+redis://127.0.0.1:1?password=pa55", "redlock+redis://u:pa55@127.0.0.1:1?node=u:pa55@127.0.0.1:1", "setnx+redis://u:pa55%zz@h", "redis://u:pa55@h/x",
		"postgres://app:pa55@127.0.0.1:1/app", "postgres://app:pa55/x@127.0.0.1:1/app", "postgres://127.0.0.1:1/app?user=app&password=pa55", "postgres://app:pa55@127.0.0.1:1/app?prefix=x:",
		"mysql://app:pa55@127.0.0.1:1/app", "mysql://app:pa55@tcp(127.0.0.1:1)/app", "mysql://app:pa55/x@127.0.0.1:1/app", "mysql://app:pa55@127.0.0.1:1/app?prefix=x:",
		"nothing://u:pa55@h", "pa55@h://x",
	} {
		for _, args := range [][]string{{"inspect", "--url", u, "k"}, {"compare", "--yes", "--no-suite", "--report", "-", "--url", u}} {
			var out, errs strings.Builder
			code := execute(args, nil, &out, &errs)
			require.NotZero(t, code, u)
			require.NotContains(t, out.String()+errs.String(), "pa55", "%q", args)
		}
	}
}
