package proof

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCount: tests without subtests count, in each package; a test counts as failed that failed by itself.
func TestCount(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		want   Counts
	}{
		"two packages with tests of one name": {
			`go test -race -v ./a ./b
--- PASS: TestConformance (9.00s)
    --- PASS: TestConformance/parallel (8.00s)
        --- PASS: TestConformance/parallel/waiting/CancelIsPrompt (0.10s)
        --- SKIP: TestConformance/parallel/signals/RequestArrives (0.00s)
            case.go:30: --- PASS: a line of a log (0.00s)
PASS
ok  	github.com/distlock/locker/a	9.1s
?   	github.com/distlock/locker/none	[no test files]
--- FAIL: TestConformance (9.00s)
    --- FAIL: TestConformance/parallel (8.00s)
        --- FAIL: TestConformance/parallel/waiting/CancelIsPrompt (0.10s)
        --- PASS: TestConformance/parallel/exclusion/OneOwner (0.00s)
--- PASS: TestOther (0.00s)
FAIL
FAIL	github.com/distlock/locker/b	9.1s
FAIL`, Counts{Passed: 3, Failed: 1, Skipped: 1},
		},
		"a test that fails beside its subtests": {
			"--- FAIL: TestA (0.00s)\n    --- PASS: TestA/one (0.00s)\nFAIL\nFAIL\ta\t0.1s\n", Counts{Passed: 1, Failed: 1},
		},
		"a package that does not end":      {"--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\npanic: no\n", Counts{Passed: 1, Failed: 1}},
		"a package that does not compile":  {"FAIL\ta [build failed]\nFAIL\n", Counts{}},
		"the histories of the simulation":  {"--- PASS: TestSimulation (60.00s)\n    simulation_test.go:30: 10000 histories: 7 calls, 5 grants\nPASS\nok  \ta\t60s", Counts{Passed: 1, Shows: "10000 histories: 7 calls, 5 grants"}},
		"the histories of a planted bug":   {"    --- PASS: TestFindsPlantedBugs/a_bug (1.00s)\n        plant_test.go:56: missed (x): 2000 histories in 9s\n", Counts{Passed: 1}},
		"nothing that tests print with -v": {"strategy/etcd: golangci-lint, tidy\nok  \ta\t1s\n", Counts{}},
	} {
		require.Equal(t, c.want, count(bufio.NewReader(strings.NewReader(c.output))), name)
	}
}

// TestRecord: each target has one run, its last. A failure is recorded, and reported when all have run.
func TestRecord(t *testing.T) {
	const file = "conformance/testdata/proof.json"
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e"}, args...)...).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("there is no git")
		}
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make")
	}
	for _, name := range append([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}, settings...) { // a hook of git sets these three
		t.Setenv(name, "") // so that the next line is undone
		require.NoError(t, os.Unsetenv(name))
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("SEEDS", "5")
	write("Makefile", "good:\n\t@echo '--- PASS: TestA (0.00s)'\nbad:\n\t@echo '--- FAIL: TestB (0.00s)'; exit 1\n")
	write(file, "[]")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "all")
	head := git("rev-parse", "--short", "HEAD")
	require.NoError(t, Run{Target: "good"}.recordIn(file))
	require.NoError(t, Run{Target: "other", Commit: "kept"}.recordIn(file))

	var out strings.Builder
	require.ErrorContains(t, Record(t.Context(), file, nil, &out), "want targets of the Makefile")
	require.ErrorContains(t, Record(t.Context(), file, []string{"good", "no-such"}, &out), `"no-such"`)
	require.Empty(t, out.String(), "nothing runs if a target is unknown")
	require.EqualError(t, Record(t.Context(), file, []string{"bad", "good"}, &out), "make failed: bad")
	require.Equal(t, "--- FAIL: TestB (0.00s)\n--- PASS: TestA (0.00s)\n", out.String())
	runs, err := Runs(file)
	require.NoError(t, err)
	require.Len(t, runs, 3)
	good, other, bad := runs[0], runs[1], runs[2]
	require.Equal(t, "SEEDS=5 make good", good.Command())
	require.True(t, good.Succeeded)
	require.Equal(t, Counts{Passed: 1}, good.Counts)
	require.Equal(t, head, good.Commit, "the file of the runs alone has changed")
	require.Equal(t, "kept", other.Commit)
	require.False(t, bad.Succeeded)
	require.Equal(t, Counts{Failed: 1}, bad.Counts)

	write("Makefile", "good:\n")
	require.NoError(t, Record(t.Context(), file, []string{"good"}, &out))
	runs, err = Runs(file)
	require.NoError(t, err)
	require.Equal(t, head+"-dirty", runs[0].Commit)
}
