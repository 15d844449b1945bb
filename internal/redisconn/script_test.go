package redisconn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	for source, code := range map[string]string{
		"":                                  "",
		"-- a\n":                            "",
		"return 1":                          "return 1\n",
		"\n\n  return 1\n\t\n":              "return 1\n",
		"if x then\n  -- why\n  y()\nend\n": "if x then\ny()\nend\n",
		"x = 1 -- why\n":                    "x = 1 -- why\n",
		"x = '-- no comment'\n":             "x = '-- no comment'\n",
		"x = 2\n    --y\n  - 1\n":           "x = 2\n- 1\n",
		"x = 2\r\n-- y\r\nreturn x":         "x = 2\nreturn x\n",
	} {
		require.Equal(t, code, codeOf(source), "%q", source)
	}
}
