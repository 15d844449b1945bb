// Package docs_test checks what README.md and the pages here say: that the Go blocks compile,
// that relative links lead somewhere, and that commands and flags exist.
//
// A ```go block with a package clause is a program. One that begins with import, func or type is the
// rest of a file. Any other is the body of a function that has the parameters of given; what it
// declares need not be used, and may be declared again. Imports are those of packages. A block
// that stands behind <!-- not compiled: why --> is left out, and so is one that imports a library
// which only benchmarks/peers needs, unless it has been downloaded.
package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// packages are the imports by name.
var packages = func() map[string]string {
	all := map[string]string{
		"goredis": "github.com/go-redsync/redsync/v4/redis/goredis/v9",
		"redis":   "github.com/redis/go-redis/v9",
		"redsync": "github.com/go-redsync/redsync/v4",
	}
	const rest = `bytes context database/sql errors fmt log log/slog net/http os strconv strings testing time
		github.com/bsm/redislock github.com/redis/rueidis github.com/redis/rueidis/rueidislock
		github.com/distlock/locker github.com/distlock/locker/strategy github.com/distlock/locker/strategy/blpop
		github.com/distlock/locker/strategy/hashreentrant github.com/distlock/locker/strategy/memory
		github.com/distlock/locker/strategy/redlock github.com/distlock/locker/strategy/setnx`
	for _, p := range strings.Fields(rest) {
		all[path.Base(p)] = p
	}
	return all
}()

var given = map[string]string{
	"ctx":   "context.Context",
	"db":    "*sql.DB",
	"l":     "locker.Locker",
	"lease": "*locker.Lease",
	"n":     "int",
	"nodes": "[]redis.UniversalClient",
	"rdb":   "*redis.Client",
	"ship":  "func(context.Context) error",
}

// pages are the texts of the pages by their paths from the root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		names, err := filepath.Glob(filepath.Join("..", pattern))
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			all[strings.TrimPrefix(filepath.ToSlash(name), "../")] = string(text)
		}
	}
	require.Contains(t, all, "README.md")
	require.Contains(t, all, "docs/decisions/README.md")
	return all
}

var fence = regexp.MustCompile("(?ms)^(?:<!-- not compiled:[^\n]*-->\n+)?[ ]*```(\\w*)\n(.*?)^[ ]*```$")

func TestGoBlocksCompile(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir, blocks := t.TempDir(), 0
	requires := newModule(t, dir, root)
	for page, text := range pages(t) {
		for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
			if text[at[2]:at[3]] != "go" || strings.HasPrefix(text[at[0]:], "<!--") {
				continue
			}
			line := 1 + strings.Count(text[:at[4]], "\n")
			src := source(t, fmt.Sprintf("%s:%d", filepath.Join(root, page), line), text[at[4]:at[5]])
			if strings.Contains(src, `"github.com/bsm/`) && !requires || strings.Contains(src, `"github.com/redis/rueidis`) && !requires {
				t.Logf("%s:%d: left out, as its library is not downloaded", page, line)
				continue
			}
			to := filepath.Join(dir, strings.NewReplacer("/", "_", ".", "_").Replace(page)) // one package for all functions
			if !strings.Contains(src, "\nfunc _(") {
				to += fmt.Sprint("_", line)
			}
			require.NoError(t, os.MkdirAll(to, 0o777))
			require.NoError(t, os.WriteFile(filepath.Join(to, fmt.Sprintf("block%d.go", line)), []byte(src), 0o666))
			blocks++
		}
	}
	require.Greater(t, blocks, 2)
	vet := exec.Command("go", "vet", "./...")
	vet.Dir, vet.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// newModule makes a module that needs what the repository's and benchmarks/peers' need, and
// reports whether the latter is there.
func newModule(t *testing.T, dir, root string) (peers bool) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	theirs, err := os.ReadFile(filepath.Join(root, "benchmarks/peers/go.mod"))
	require.NoError(t, err)
	text := strings.Replace(string(mod), "module github.com/distlock/locker", "module docs.example", 1)
	text += "\nrequire github.com/distlock/locker v0.0.0\nreplace github.com/distlock/locker => " + root + "\n"
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	peers = true
	for _, m := range regexp.MustCompile(`(?m)^\s(github.com/(?:bsm/redislock|redis/rueidis)) (v\S+)$`).FindAllStringSubmatch(string(theirs), -1) {
		_, err := os.Stat(filepath.Join(strings.TrimSpace(string(cache)), m[1]+"@"+m[2]))
		if peers = peers && err == nil; peers {
			text += "require " + m[1] + " " + m[2] + "\n"
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o666))
	var sums []byte
	for _, name := range []string{"go.sum", "benchmarks/peers/go.sum"} {
		sum, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		sums = append(sums, sum...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o666))
	return peers
}

var declares = regexp.MustCompile(`^(?:\s*//.*\n|\s)*(import|func|type)\b`)

// source makes a file of a block that is at the position pos.
func source(t *testing.T, pos, block string) string {
	t.Helper()
	if regexp.MustCompile(`(?m)^package `).MatchString(block) {
		return "//line " + pos + "\n" + block
	}
	before, after := "package p\n", "" // what goes around the block
	if !declares.MatchString(block) {
		before, after = before+"func _() error { for {\n", "}}\n"
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, pos, before+block+after, 0)
	require.NoError(t, err, "the block at %s", pos)
	var imports, params string
	need := func(name string) {
		if from := packages[name]; from != "" && !strings.Contains(imports, " "+name+" ") {
			imports += fmt.Sprintf("import %s %q\n", name, from)
		}
	}
	for _, ident := range file.Unresolved {
		need(ident.Name)
		if kind := given[ident.Name]; kind != "" && after != "" && !strings.Contains(params, ident.Name+" "+kind) {
			params += ident.Name + " " + kind + ", "
			for _, m := range regexp.MustCompile(`(\w+)\.`).FindAllStringSubmatch(kind, -1) {
				need(m[1])
			}
		}
	}
	if after == "" {
		return "package p\n" + imports + "//line " + pos + "\n" + block
	}
	var body strings.Builder
	seen, from := make(map[string]bool), 0
	for _, stmt := range file.Decls[0].(*ast.FuncDecl).Body.List[0].(*ast.ForStmt).Body.List {
		s, ok := stmt.(*ast.AssignStmt)
		if !ok || s.Tok != token.DEFINE {
			continue
		}
		operator, uses := "=", ""
		for _, left := range s.Lhs {
			if name := left.(*ast.Ident).Name; name != "_" {
				if !seen[name] {
					seen[name], operator = true, ":="
				}
				uses += "; _ = " + name
			}
		}
		at, end := set.Position(s.TokPos).Offset-len(before), set.Position(s.End()).Offset-len(before)
		body.WriteString(block[from:at] + operator + block[at+len(":="):end] + uses)
		from = end
	}
	return "package p\n" + imports + "func _(" + params + ") error { for {\n//line " + pos + "\n" + body.String() + block[from:] + after
}
