package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// peers are the libraries with which docs/choosing.md compares this one, and the versions that were looked
// at, from testdata/peers.txt.
func peers(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/peers.txt")
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		module, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[module] = version
	}
	require.Len(t, all, 3)
	return all
}

// TestPeersAreLinked: each cell about another library has a link to where it is from, at the version that was
// looked at, and the text names these versions.
func TestPeersAreLinked(t *testing.T) {
	_, compared, found := strings.Cut(pages(t)["docs/choosing.md"], "\n## Compared with other libraries\n")
	require.True(t, found)
	compared, _, _ = strings.Cut(compared, "\n### Figures\n")
	cells := 0
	for line := range strings.Lines(compared) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| |") {
			continue
		}
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		require.Len(t, row, 6, line)
		for _, cell := range row[2:] {
			require.Regexp(t, `\]\(https://\S+\)`, cell, "%s: no link", row[0])
			cells++
		}
	}
	require.Greater(t, cells, 40)
	for module, version := range peers(t) {
		repository := regexp.MustCompile(`/v\d+$`).ReplaceAllString(module, "")
		require.Contains(t, compared, " "+version, "the text does not name the version of %s", module)
		for _, m := range regexp.MustCompile(regexp.QuoteMeta(repository)+`(?:/v\d+@|@|/blob/|/tree/)(v[\d.]+)`).FindAllStringSubmatch(compared, -1) {
			require.Equal(t, version, m[1], "%s", m[0])
		}
	}
}

// TestPeersAreNewest: no library has a newer version than the one that was compared. It asks the module proxy:
// make peers, which the nightly run does.
func TestPeersAreNewest(t *testing.T) {
	if os.Getenv("LOCKER_PEERS") != "newest" {
		t.Skip("it asks the network: make peers")
	}
	for module, compared := range peers(t) {
		out, err := exec.Command("go", "list", "-m", "-json", "-versions", module+"@latest").Output()
		require.NoError(t, err)
		var of struct{ Versions []string }
		require.NoError(t, json.Unmarshal(out, &of))
		newest := compared
		for _, v := range of.Versions {
			if !strings.Contains(v, "-") && slices.Compare(numbers(v), numbers(newest)) > 0 {
				newest = v
			}
		}
		if newest != compared {
			t.Errorf("%s %s is out: look whether the comparison in docs/choosing.md still holds, and put the version into testdata/peers.txt", module, newest)
		}
	}
}

// numbers are those of v1.2.3.
func numbers(version string) (ns []int) {
	for field := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
		n := 0
		for _, digit := range field {
			n = 10*n + int(digit-'0')
		}
		ns = append(ns, n)
	}
	return ns
}
