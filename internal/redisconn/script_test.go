package redisconn

import (
	"testing"
	"testing/fstest"

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
		require.Equal(t, code, codeOf(source, nil), "%q", source)
	}
}

// A file may name others; the first library that has one gives it.
func TestFilesOfScripts(t *testing.T) {
	t.Parallel()
	file := func(name, text string) fstest.MapFS { return fstest.MapFS{"lua/" + name: {Data: []byte(text)}} }
	libraries := []Files{file("a.lua", "-- says\n-- b.lua\na()"), file("b.lua", "  b()\n"), file("b.lua", "other()\n")}
	require.Equal(t, "x()\nb()\na()\nreturn 1\n", codeOf("x()\n-- a.lua\nreturn 1\n", libraries))
	require.Empty(t, codeOf("-- see a.lua\n", libraries))
	require.PanicsWithValue(t, "no such file: c.lua", func() { codeOf("-- c.lua\n", libraries) })
}

func TestNamesIn(t *testing.T) {
	t.Parallel()
	const source = "local lock, fence = unpack(KEYS)\nlocal claim = unpack(ARGV) -- the id\n"
	require.Equal(t, []string{"lock", "fence"}, namesIn(source, "KEYS"))
	require.Equal(t, []string{"claim"}, namesIn(source, "ARGV"))
	require.Empty(t, namesIn("return 1\n", "KEYS"))
}
