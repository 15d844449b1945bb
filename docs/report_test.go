package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reported are the modules with the programs of make report, and where these and the cases of both are.
var reported = map[string][]string{
	"benchmarks":            {"benchmarks/report", "internal/test/report"},
	"strategy/etcd":         {"strategy/etcd/internal/report", "internal/test/report"},
	"internal/test/fencing": {"internal/test/fencing/report", "internal/test/report"},
}

// TestReportIsCurrent: docs/report.md has every case and subject that there is, and the versions in go.mod.
func TestReportIsCurrent(t *testing.T) {
	page := pages(t)["docs/report.md"]
	named := regexp.MustCompile(`(?:\bName: "([^"]+)", Title: "([^"]+)"|\bcommand\("([^"]+)", "([^"]+)")`)
	subject := regexp.MustCompile(`\{\s*Name: "([^"]+)", (?:Module: ("[^"]+"|\w+), )?Nodes|\b(?:ours|Ours)\("([^"]+)", \w+\.New`)
	version := regexp.MustCompile(`(?m)^\|[^|]+\| (v[\d.]+) \|`)
	for module, dirs := range reported {
		part := reportOf(t, page, module)
		cases, subjects := 0, 0
		for _, dir := range dirs {
			files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
			require.NoError(t, err)
			for _, file := range files {
				if strings.HasSuffix(file, "_test.go") {
					continue
				}
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				for _, m := range named.FindAllStringSubmatch(string(text), -1) {
					contains(t, part, "### "+m[2]+m[4]+"\n")
					contains(t, part, " -case "+m[1]+m[3]+"`\n")
					cases++
				}
				for _, m := range subject.FindAllStringSubmatch(string(text), -1) {
					contains(t, part, "\n| "+m[1]+m[3]+" | ")
					subjects++
				}
			}
		}
		require.GreaterOrEqual(t, cases, 6, module)
		require.NotZero(t, subjects, module)
		mod, err := os.ReadFile(filepath.Join("..", module, "go.mod"))
		require.NoError(t, err)
		for _, m := range version.FindAllStringSubmatch(part, -1) {
			require.Contains(t, string(mod), " "+m[1]+"\n", "%s/go.mod has another version: make report", module)
		}
	}
}

// TestReportNamesCommits: each row of a strategy names the commit that was run, which can be found again, and each row of a
// library its version.
func TestReportNamesCommits(t *testing.T) {
	page := pages(t)["docs/report.md"]
	row := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| \d+ \| (?:yes|not offered) \|`)
	commit, version := regexp.MustCompile(`^[0-9a-f]{7,40}$`), regexp.MustCompile(`^v\d+\.\d+\.\d+\S*$`)
	for module := range reported {
		commits := 0
		for _, m := range row.FindAllStringSubmatch(reportOf(t, page, module), -1) {
			if commit.MatchString(m[2]) {
				commits++
			} else if !version.MatchString(m[2]) {
				t.Errorf("docs/report.md: the version of %s is %q, want a commit or a version: make report", m[1], m[2])
			}
		}
		if commits == 0 {
			t.Errorf("docs/report.md names no commit in the tables of %s: make report", module)
		}
	}
}

// TestPeersPageIsCurrent: docs/peers-suite.md has every library of both programs, in the version of go.mod.
func TestPeersPageIsCurrent(t *testing.T) {
	page := pages(t)["docs/peers-suite.md"]
	name := regexp.MustCompile(`\{\s*Name: "([^"]+)", (?:Module|Harness)`)
	for _, dir := range []string{"benchmarks/suite/libraries.go", "strategy/etcd/internal/suite/main.go"} { // as on the page
		module := strings.TrimSuffix(strings.TrimSuffix(filepath.Dir(dir), "/suite"), "/internal")
		_, part, found := strings.Cut(page, "| case |")
		require.True(t, found, "docs/peers-suite.md has no table of %s: make report", module)
		heads, rest, _ := strings.Cut(part, "\n")
		page = rest
		text, err := os.ReadFile(filepath.Join("..", dir))
		require.NoError(t, err)
		mod, err := os.ReadFile(filepath.Join("..", module, "go.mod"))
		require.NoError(t, err)
		libraries := name.FindAllStringSubmatch(string(text), -1)
		require.Len(t, libraries, strings.Count(heads, "|"), "docs/peers-suite.md has other libraries than %s: make report", dir)
		for _, m := range libraries {
			version := regexp.MustCompile(`\| ?` + regexp.QuoteMeta(m[1]) + ` (v[\d.]+|[0-9a-f]{7,}) \|`).FindStringSubmatch("|" + heads)
			require.NotNil(t, version, "docs/peers-suite.md lacks %s, or its version: make report", m[1])
			if strings.HasPrefix(version[1], "v") {
				require.Contains(t, string(mod), " "+version[1]+"\n", "%s/go.mod has another version: make report", module)
			}
		}
	}
}

// reportOf is the part of the page that a program in this module writes.
func reportOf(t *testing.T, page, module string) string {
	t.Helper()
	for _, part := range strings.Split(page, "<!-- by make report: ")[1:] {
		if strings.Contains(part, "`go -C "+module+" run ") {
			part, _, _ = strings.Cut(part, "<!-- end of ")
			return part
		}
	}
	t.Fatalf("docs/report.md has nothing of %s: make report", module)
	return ""
}

// contains reports what the page lacks, without the page.
func contains(t *testing.T, part, want string) {
	t.Helper()
	if !strings.Contains(part, want) {
		t.Errorf("docs/report.md lacks %q: make report", want)
	}
}
