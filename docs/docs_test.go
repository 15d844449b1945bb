// Package docs_test checks what README.md and the pages here say. Every block of code is compiled
// and run: those of Go by testdata/blocks, of the shell with the built command, of ACL lines,
// YAML and Go on real Redis servers. Blocks for PostgreSQL are run in strategy/postgres.
// Relative links must lead somewhere, and commands and flags must exist.
//
// A new block is run without further ado. What cannot be run is listed in notRun. A Go block that stands
// behind <!-- not compiled: why --> is left out, and so is one that imports a library which only
// benchmarks needs, unless it has been downloaded.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// notRun are the blocks that are not run, by name, and why.
var notRun = map[string]string{
	"README.md, Common tasks, go 1":                                           "lines to choose from, not a sequence: compiled only",
	"README.md, Two commands, in a clone of this repository, sh 1":            "make test runs this test; examples/flashsale/sale tests the sale",
	"docs/command.md, Comparing the strategies, sh 1":                         "takes minutes; cmd/locker/internal/compare tests it",
	"docs/command.md, How far its figures can be trusted, sh 1":               "takes half an hour; cmd/locker/internal/compare tests it",
	"docs/compatibility.md, Testing a server, sh 1":                           "takes minutes; internal/test/matrix tests it",
	"docs/faq.md, Does it work through a proxy, or on a managed Redis?, sh 1": "takes minutes; cmd/locker/internal/compare tests it",
	"docs/faults.md, Soak, sh 1":                                              "takes minutes; internal/test/soak tests it",
	"docs/faults.md, What goes wrong, and what you see, sh 1":                 "takes minutes; runs the tests of the strategies",
	"docs/faults.md, What goes wrong, and what you see, sh 2":                 "runs a test of strategy/blpop",
	"docs/fencing.md, Fencing, sh 1":                                          "examples/fencing tests it, and is a module of its own",
	"docs/fencing.md, How much it stops, sh 1":                                "internal/test/fencing/pauses tests it, with fewer pauses",
	"docs/getting-started.md, 1. A lock in this process, sh 1":                "downloads the published module",
	"docs/getting-started.md, 2. The same lock on Redis, sh 1":                "starts a container, and downloads the published module",
	"docs/getting-started.md, 3. Or on PostgreSQL, sh 1":                      "starts a container",
	"docs/getting-started.md, 3. Or on PostgreSQL, sh 2":                      "downloads the published module",
	"docs/getting-started.md, 3. Or on PostgreSQL, sh 3":                      "needs a clone beside it",
	"docs/report.md, Report: the same faults for each library, sh 1":          "takes minutes; internal/test/report tests the cases",
	"docs/simulation.md, Models, sh 1":                                        "internal/explore and internal/spec test it",
	"docs/simulation.md, Simulation, sh 1":                                    "takes minutes; internal/test/simulation tests it",
	"docs/migrating.md, From Redisson, java 1":                                "strategy/hashreentrant tests Redisson's commands",
}

// beside are the blocks that the test of another block looks at.
var beside = map[string]string{
	"docs/getting-started.md, 1. A lock in this process, console 1": "the output of the program above it",
	"docs/getting-started.md, 2. The same lock on Redis, console 1": "the output of the program above it",
}

func root(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	return root
}

// pages are the texts of the pages by their paths from the root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all, err := docblocks.Pages("..")
	require.NoError(t, err)
	return all
}

// read returns the blocks of those languages.
func read(t *testing.T, langs ...string) (some []docblocks.Block) {
	t.Helper()
	all, err := docblocks.Read("..")
	require.NoError(t, err)
	for _, b := range all {
		if slices.Contains(langs, b.Lang) {
			some = append(some, b)
		}
	}
	require.NotEmpty(t, some)
	return some
}

// TestEveryBlockIsKnown: no block escapes the tests by its language or for want of a fence, and
// no reason outlives its block.
func TestEveryBlockIsKnown(t *testing.T) {
	all, err := docblocks.Read("..")
	require.NoError(t, err)
	left := make(map[string]bool)
	for name := range notRun {
		left[name] = true
	}
	for name := range beside {
		left[name] = true
	}
	for _, b := range all {
		picture := b.Lang == "text" && b.Page == "docs/report.md"
		if !picture && !slices.Contains([]string{"", "go", "sql", "sh", "console", "yaml"}, b.Lang) && !left[b.Name()] {
			t.Errorf("%s:%d: %q is run by no test; if it cannot be, say why in notRun", b.Page, b.Line, b.Name())
		}
		delete(left, b.Name())
	}
	require.Empty(t, left, "there are no such blocks")
	indented := regexp.MustCompile(`(?m)^    (\$ .*|(?:[A-Z_]+=\S* )*(?:locker|go|make|cd|docker|redis-cli|psql) .*)$`)
	for page, text := range pages(t) {
		for _, m := range indented.FindAllString(docblocks.Fence.ReplaceAllString(text, ""), -1) {
			t.Errorf("%s: %q is a command: put it between fences, so that it is run", page, m)
		}
	}
}

// TestGoBlocks compiles, vets and runs the Go blocks in one go test.
func TestGoBlocks(t *testing.T) {
	t.Parallel()
	m := docblocks.Module{Root: root(t), Like: ".", Tests: "testdata/blocks", NotRun: make(map[string]string)}
	havePeers := addPeers(t, &m)
	for _, b := range read(t, "go") {
		switch isPeers := regexp.MustCompile(`\bredislock\.|\brueidis(lock)?\.`).MatchString(b.Text); {
		case b.Why != "" || strings.Contains(b.Text, `strategy/postgres"`):
		case isPeers && !havePeers:
			t.Logf("%s: left out, as its library is not downloaded", b.Name())
		default:
			if m.NotRun[b.Name()] = notRun[b.Name()]; b.NeedsPostgres() {
				m.NotRun[b.Name()] = "strategy/postgres runs it"
			}
			m.Blocks = append(m.Blocks, b)
		}
	}
	dir := t.TempDir()
	forBlocks, forPrograms := redistest.Start(t).Addr(), redistest.Start(t).Addr()
	require.NoError(t, m.Write(dir, func(b docblocks.Block) string {
		return strings.ReplaceAll(b.Text, "localhost:6379", forPrograms)
	}))
	test := docblocks.Go(dir, "test", "-vet=all", "-count=1", "./...")
	test.Env = append(test.Env, "DOCS_ROOT="+m.Root, "DOCS_REDIS="+forBlocks)
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// addPeers lets the module have what benchmarks needs, and reports whether it is there.
func addPeers(t *testing.T, m *docblocks.Module) bool {
	t.Helper()
	theirs, err := os.ReadFile(filepath.Join(m.Root, "benchmarks/go.mod"))
	require.NoError(t, err)
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	for _, r := range regexp.MustCompile(`(?m)^\s(github.com/(?:bsm/redislock|redis/rueidis)) (v\S+)$`).FindAllStringSubmatch(string(theirs), -1) {
		if _, err := os.Stat(filepath.Join(strings.TrimSpace(string(cache)), r[1]+"@"+r[2])); err != nil {
			m.More = ""
			return false
		}
		m.More += "require " + r[1] + " " + r[2] + "\n"
	}
	m.Sums, err = os.ReadFile(filepath.Join(m.Root, "benchmarks/go.sum"))
	require.NoError(t, err)
	return true
}

// TestFiguresAreGenerated: the figures about other libraries' speed are those of
// docs/performance.md, of one run. make bench-peers writes them between marks.
func TestFiguresAreGenerated(t *testing.T) {
	all := pages(t)
	for _, page := range []string{"README.md", "docs/choosing.md"} {
		_, compared, found := strings.Cut(all[page], "\n## Compared with other libraries\n")
		require.True(t, found)
		compared, _, _ = strings.Cut(compared, "\n## ")
		before, rest, _ := strings.Cut(compared, "<!-- by make bench-peers -->")
		marked, after, found := strings.Cut(rest, "<!-- end -->")
		require.True(t, found)
		require.NotRegexp(t, `[ (]\d+\.\d\d[ ,;:)|]`, before+after, "%s: a figure copied by hand is wrong after the next run", page)
		figures := regexp.MustCompile(`\d+\.\d+k?|\d+ (?:B|ms)\b`).FindAllString(marked, -1)
		require.NotEmpty(t, figures)
		for _, figure := range figures {
			require.Contains(t, all["docs/performance.md"], figure, "%s has a figure of another run", page)
		}
	}
}

// google/wire is in the module for those who use it: no other package leads to it.
func TestWireIsForItsSetsOnly(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-f", `{{range .Deps}}{{if eq . "github.com/google/wire"}}{{$.ImportPath}}{{end}}{{end}}`, "./...")
	list.Dir = root(t)
	out, err := list.Output()
	require.NoError(t, err)
	require.Equal(t, []string{"github.com/distlock/locker/examples/wire", "github.com/distlock/locker/strategy/wireset"}, strings.Fields(string(out)))
}
