package docblocks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// A Module is made of Go blocks and of tests that run them.
type Module struct {
	Root   string // of the repository
	Like   string // the module there whose requirements it has: "." or "strategy/postgres"
	More   string // further lines of its go.mod
	Sums   []byte // further lines of its go.sum
	Tests  string // a directory of test files of package blocks_test
	Blocks []Block
	NotRun map[string]string // by name, why: these blocks are compiled only
}

// Write writes the module into dir: a package for each block, and in package blocks_test
// "blocks" and "programs", by name, beside Tests. Text is changed by replace, which may be nil.
func (m Module) Write(dir string, replace func(Block) string) error {
	if err := m.writeMod(dir); err != nil {
		return err
	}
	imports, blocks, programs := make(map[string]string), "", ""
	for _, b := range m.Blocks {
		if replace != nil {
			b.Text = replace(b)
		}
		f, err := b.file(m.Root)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, f.pkg, fmt.Sprintf("block%d.go", b.Line)), f.source); err != nil {
			return err
		}
		entry := fmt.Sprintf("\t%q: %s,\n", b.Name(), f.call)
		switch {
		case f.call == "" || m.NotRun[b.Name()] != "": // compiled
			if imports[f.pkg] == "" {
				imports[f.pkg] = "_"
			}
			continue
		case f.program:
			programs += entry
		default:
			blocks += entry
		}
		imports[f.pkg] = f.pkg
	}
	var imported strings.Builder
	for pkg, as := range imports {
		fmt.Fprintf(&imported, "import %s %q\n", as, module+"/"+pkg)
	}
	if err := m.copyTests(dir); err != nil {
		return err
	}
	var fields strings.Builder
	for name, kind := range given {
		fmt.Fprintf(&fields, "\t%s %s\n", name, kind)
	}
	return write(filepath.Join(dir, "given_test.go"), "package blocks_test\n"+
		"import (\n\t\"context\"\n\t\"database/sql\"\n\t\"github.com/distlock/locker\"\n\t\"github.com/redis/go-redis/v9\"\n)\n"+imported.String()+
		"type given struct {\n"+fields.String()+"}\n"+
		"var blocks = map[string]func(given) error{\n"+blocks+"}\n"+
		"var programs = map[string]func(){\n"+programs+"}\n")
}

// copyTests copies Tests, among them a given_test.go by which they compile where they lie.
func (m Module) copyTests(dir string) error {
	tests, err := filepath.Glob(filepath.Join(m.Tests, "*_test.go"))
	if err != nil || len(tests) == 0 {
		return fmt.Errorf("no tests in %s (%w)", m.Tests, err)
	}
	for _, name := range tests {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, filepath.Base(name)), "//line "+name+":1\n"+string(text)); err != nil {
			return err
		}
	}
	return nil
}

// module lies below the repository's, so that it may import the repository's internal packages.
const module = "github.com/distlock/locker/docs/blocks"

func (m Module) writeMod(dir string) error {
	like := filepath.Join(m.Root, m.Like)
	mod, err := os.ReadFile(filepath.Join(like, "go.mod"))
	if err != nil {
		return err
	}
	text := string(mod)
	name := regexp.MustCompile(`(?m)^module (.*)$`).FindStringSubmatch(text)[1]
	text = strings.Replace(text, "module "+name, "module "+module, 1)
	text = strings.ReplaceAll(text, "=> ../..", "=> "+m.Root)
	text += fmt.Sprintf("\nrequire %s v0.0.0\nreplace %s => %s\n%s", name, name, like, m.More)
	sums, err := os.ReadFile(filepath.Join(like, "go.sum"))
	if err != nil {
		return err
	}
	if err := write(filepath.Join(dir, "go.mod"), text); err != nil {
		return err
	}
	return write(filepath.Join(dir, "go.sum"), string(sums)+string(m.Sums))
}

func write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o666)
}

// Go returns the go command in dir with the environment of the tests. It builds with the race
// detector where this program has it: what both need is compiled once. The compiler runs at a lower
// priority than the tests beside it, as in the Makefile.
func Go(dir, verb string, args ...string) *exec.Cmd {
	all := []string{verb}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				all = append(all, "-race")
			}
		}
	}
	cmd := exec.Command("go", append(all, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod -trimpath '-toolexec=nice -n 3'", "GOWORK=off")
	return cmd
}
