package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// result holds what became of the tests on a server.
type result struct {
	Product, Version string
	Date, Commit     string
	All              bool // every case on every topology
	Passed           int
	Failed           []string // the tests
	Alone            []string // those that failed beside others, and passed alone
	Skipped          []string
}

// String is for the terminal.
func (r result) String() string {
	s := fmt.Sprintf("%s %s: %d tests passed, %d of them alone, %d failed, %d skipped\n", r.Product, r.Version, r.Passed, len(r.Alone), len(r.Failed), len(r.Skipped))
	for _, name := range r.Failed {
		s += "  failed: " + name + "\n"
	}
	return s
}

// test runs the tests of s. What they print about a failure goes to standard error.
func (s server) test(ctx context.Context, root string, all bool) result {
	goTest := func(args ...string) result {
		cmd := exec.CommandContext(ctx, "go", append([]string{"-C", filepath.Join(root, s.kind.module), "test", "-json", "-race", "-count=1", "-p=1", "-timeout=40m"}, args...)...)
		cmd.Env = append(os.Environ(), s.kind.env(s.program)...)
		if all {
			cmd.Env = append(cmd.Env, "LOCKER_CONFORMANCE=all")
		}
		cmd.Stderr = os.Stderr
		out, err := cmd.Output() // an error is a test that failed, too
		r := count(out)
		if err != nil && len(r.Failed) == 0 {
			r.Failed = []string{"go test: " + err.Error()}
		}
		return r
	}
	r := goTest(s.kind.packages...)
	r.Product, r.Version, r.All = s.kind.product, s.version, all
	var failed []string
	for _, name := range r.Failed { // a machine that others use may have been too slow for many at once
		pkg, test, ok := strings.Cut(name, ": ")
		if alone := goTest("-run", exactly(test), "github.com/distlock/locker/"+pkg); ok && alone.Passed > 0 && len(alone.Failed) == 0 {
			r.Alone = append(r.Alone, name)
			continue
		}
		failed = append(failed, name)
	}
	r.Failed, r.Passed = failed, r.Passed+len(r.Alone)
	return r
}

// exactly returns the pattern of go test's -run for a test.
func exactly(test string) string {
	var parts []string
	for part := range strings.SplitSeq(test, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	return strings.Join(parts, "/")
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// count counts the tests that have no subtests, and prints what failed ones said.
func count(out []byte) (r result) {
	ended := map[string]string{} // by package and test: pass, fail, skip
	said := map[string][]string{}
	parents := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		name := strings.TrimPrefix(e.Package, "github.com/distlock/locker/") + ": " + cmp.Or(e.Test, "the package")
		switch e.Action {
		case "pass", "skip", "fail":
			ended[name] = e.Action
		case "output":
			said[name] = append(said[name], e.Output)
		}
		for i := range e.Test {
			if e.Test[i] == '/' { // a case's name has one, too: not each of these is a test
				parents[name[:len(name)-len(e.Test)+i]] = true
			}
		}
	}
	for name, action := range ended {
		ofPackage := strings.HasSuffix(name, ": the package")
		switch {
		case action == "fail" && ofPackage && !slices.ContainsFunc(keysOf(ended, "fail"), within(name)):
			r.Failed = append(r.Failed, name) // it does not compile, or a panic
			fmt.Fprint(os.Stderr, strings.Join(said[name], ""))
		case ofPackage || parents[name] && action != "fail":
		case action == "pass":
			r.Passed++
		case action == "skip":
			r.Skipped = append(r.Skipped, name)
		case !parents[name] || !slices.ContainsFunc(keysOf(ended, "fail"), func(other string) bool { return strings.HasPrefix(other, name+"/") }):
			r.Failed = append(r.Failed, name)
			fmt.Fprint(os.Stderr, strings.Join(said[name], ""))
		}
	}
	slices.Sort(r.Failed)
	slices.Sort(r.Skipped)
	return r
}

func keysOf(ended map[string]string, action string) (names []string) {
	for name, a := range ended {
		if a == action {
			names = append(names, name)
		}
	}
	return names
}

// within reports whether a test is of the package that pkg names.
func within(pkg string) func(string) bool {
	of := strings.TrimSuffix(pkg, "the package")
	return func(name string) bool { return name != pkg && strings.HasPrefix(name, of) }
}

func load(store string) (all []result, err error) {
	text, err := os.ReadFile(store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// keep puts r into the store, in place of an earlier one of the same server.
func keep(store string, r result) error {
	all, err := load(store)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, r.ofSameServer)
	all = append(all, r)
	slices.SortFunc(all, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.Product, b.Product), compareVersions(a.Version, b.Version))
	})
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(store, append(text, '\n'), 0o644)
}

func (r result) ofSameServer(other result) bool {
	return r.Product == other.Product && r.Version == other.Version
}

// merge puts into the store what other stores have besides. Each of those began as a copy of a committed store: a result
// that is there, or is older than the one that is there, was not made for it.
func merge(store string, others []string) error {
	before, err := load(store)
	if err != nil {
		return err
	}
	for _, other := range others {
		if _, err := os.Stat(other); err != nil {
			return err
		}
		all, err := load(other)
		if err != nil {
			return fmt.Errorf("%s: %w", other, err)
		}
		for _, r := range all {
			if i := slices.IndexFunc(before, r.ofSameServer); i >= 0 && (r.Date < before[i].Date || reflect.DeepEqual(r, before[i])) {
				continue
			}
			fmt.Printf("from %s: %v", other, r)
			if err := keep(store, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareVersions compares 7.2.10 and 7.2.9 by numbers.
func compareVersions(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(version string) (ns []int) {
	for field := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(field)
		ns = append(ns, n)
	}
	return ns
}
