// Structure counts the code of this module that one free lock runs: it takes and gives back a
// lock of strategy setnx a thousand times, and prints the functions, files and mutex
// operations that each pair has in common.
//
//	go run ./internal/test/structure      a line for each package
//	go run ./internal/test/structure -v   also each function, and how often a pair calls it
//
// -most 109,21,14 makes it fail if there are more functions, files or mutex operations than that.
//
// It compares the coverage of two processes, one with a thousand pairs more: what runs once, as
// the making of a connection does, cancels out.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/embedredis"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

const (
	module = "github.com/distlock/locker"
	itself = module + "/internal/test/structure"
	warm   = 5    // pairs of the shorter process
	more   = 1000 // pairs that the longer one has besides
)

func main() {
	log.SetFlags(0)
	pairs := flag.Int("pairs", 0, "take and give back a lock so many times, and no more")
	url := flag.String("redis", "", "of -pairs: the server")
	verbose := flag.Bool("v", false, "list the functions")
	var most sum
	flag.Func("most", "fail above so many `functions,files,locks`", func(s string) (err error) {
		most, err = parseSum(s)
		return err
	})
	flag.Parse()
	ctx := context.Background()
	if *pairs > 0 {
		if err := run(ctx, *url, *pairs); err != nil {
			log.Fatal(err)
		}
		return
	}
	functions, err := measure(ctx)
	if err != nil {
		log.Fatal(err)
	}
	all := print(functions, *verbose)
	if most != (sum{}) && all.exceeds(most) {
		log.Fatalf("a free lock needs more than %d functions, %d files and %d mutex operations", most.functions, most.files, most.locks)
	}
}

// run is the measured program.
func run(ctx context.Context, url string, pairs int) error {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	l, err := setnx.New(rdb)
	if err != nil {
		return err
	}
	defer l.Close()
	for range pairs {
		if err := locker.Do(ctx, l, "free", func(context.Context) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// measure returns the functions that each pair runs.
func measure(ctx context.Context) ([]function, error) {
	server, err := embedredis.Start()
	if err != nil {
		return nil, err
	}
	defer server.Close()
	dir, err := os.MkdirTemp("", "structure")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "structure")
	if _, err := output(exec.CommandContext(ctx, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"/...", "-o", binary, itself)); err != nil {
		return nil, err
	}
	var profiles [2]profile
	for i, pairs := range []int{warm, warm + more} {
		data := filepath.Join(dir, fmt.Sprint(pairs))
		if err := os.Mkdir(data, 0o700); err != nil {
			return nil, err
		}
		c := exec.CommandContext(ctx, binary, "-redis", server.URL(), "-pairs", fmt.Sprint(pairs))
		c.Env = append(os.Environ(), "GOCOVERDIR="+data)
		if _, err := output(c); err != nil {
			return nil, err
		}
		if profiles[i], err = readProfile(ctx, data); err != nil {
			return nil, err
		}
	}
	root, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module))
	if err != nil {
		return nil, err
	}
	return perPair(strings.TrimSpace(root), profiles[1].less(profiles[0]))
}

// output returns what c prints; its error has what c prints of its trouble.
func output(c *exec.Cmd) (string, error) {
	out, err := c.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s: %w\n%s", c, err, exit.Stderr)
	}
	return string(out), err
}

// sum counts functions, their files and the mutex operations in them.
type sum struct{ functions, files, locks int }

// parseSum reads three numbers with commas between them.
func parseSum(s string) (n sum, err error) {
	var rest string
	if read, _ := fmt.Sscanf(s+" end", "%d,%d,%d %s", &n.functions, &n.files, &n.locks, &rest); read != 4 || rest != "end" {
		return n, fmt.Errorf("%q is not of the form 109,21,14", s)
	}
	return n, nil
}

func (s sum) exceeds(most sum) bool {
	return s.functions > most.functions || s.files > most.files || s.locks > most.locks
}

// print prints the sums of the packages, and returns the sum of all.
func print(functions []function, verbose bool) (all sum) {
	slices.SortFunc(functions, func(a, b function) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line)) })
	sums, last := make(map[string]*sum), ""
	for _, f := range functions {
		s := sums[path.Dir(f.file)]
		if s == nil {
			s = new(sum)
			sums[path.Dir(f.file)] = s
		}
		for _, s := range []*sum{s, &all} {
			s.functions++
			s.locks += f.locks
			if f.file != last {
				s.files++
			}
		}
		last = f.file
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush()
	if verbose {
		fmt.Fprintln(t, "calls\tmutex operations\tfunction\t")
		for _, f := range functions {
			fmt.Fprintf(t, "%d\t%d\t%s:%d %s\t\n", f.calls, f.locks, f.file, f.line, f.name)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t, "functions\tfiles\tmutex operations\tpackage\t")
	for _, p := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t\n", sums[p].functions, sums[p].files, sums[p].locks, p)
	}
	fmt.Fprintf(t, "%d\t%d\t%d\tall\t\n", all.functions, all.files, all.locks)
	return all
}
