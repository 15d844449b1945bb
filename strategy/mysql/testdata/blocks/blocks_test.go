package blocks_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if name := os.Getenv("DOCS_PROGRAM"); name != "" {
		programs[name]()
		return
	}
	os.Exit(m.Run())
}

func TestPrograms(t *testing.T) {
	require.NotEmpty(t, programs)
	for name := range programs {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "DOCS_PROGRAM="+name)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.Regexp(t, `^order 42\b`, string(out), name)
	}
}
