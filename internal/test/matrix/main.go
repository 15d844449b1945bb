// Command matrix runs the tests of the strategies on other servers than those installed, and
// writes docs/compatibility.md.
//
//	go run ./internal/test/matrix -docs docs /opt/redis-7.4/redis-server /opt/pg17/bin/postgres
//	make matrix SERVERS="/opt/redis-7.4/redis-server /opt/pg17/bin/postgres"
//	go run ./internal/test/matrix -docs docs -merge */results.json
//
// A server is the path of its program: redis-server, valkey-server, keydb-server, postgres, mariadbd,
// mysqld or etcd. The program is asked for its version. Results are kept in results.json beside this file, one for each
// version; a run replaces the results of the versions that it was given. With -merge no test is run: the
// results of runs on other machines are kept, too. The exit code is 1 if a test failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("matrix", flag.ExitOnError)
	docs := flags.String("docs", "", "write compatibility.md into this directory")
	all := flags.Bool("all", false, "every case of the conformance suite on every topology")
	merging := flags.Bool("merge", false, "the arguments are results.json files of other runs, not programs: keep what is new in them")
	_ = flags.Parse(args) // ExitOnError
	root, err := output(ctx, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return fmt.Errorf("want a checkout of the repository: %w", err)
	}
	commit, err := output(ctx, "git", "-C", root, "rev-parse", "--short", "HEAD")
	if err != nil {
		return err
	}
	store := filepath.Join(root, "internal/test/matrix/results.json")
	var failed []string
	if *merging {
		err = merge(store, flags.Args())
	} else {
		failed, err = testAll(ctx, root, commit, store, flags.Args(), *all)
	}
	if err != nil {
		return err
	}
	if *docs != "" {
		page, err := render(store)
		if err == nil {
			err = os.WriteFile(filepath.Join(*docs, "compatibility.md"), []byte(page), 0o644)
		}
		if err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return errors.New("tests failed on " + strings.Join(failed, ", "))
	}
	return nil
}

// testAll runs the tests on each program, and keeps the results. It returns the servers on which tests failed.
func testAll(ctx context.Context, root, commit, store string, programs []string, all bool) (failed []string, err error) {
	for _, program := range programs {
		s, err := identify(ctx, program)
		if err != nil {
			return nil, err
		}
		fmt.Printf("%s %s ...\n", s.kind.product, s.version)
		r := s.test(ctx, root, all)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.Date, r.Commit = time.Now().UTC().Format(time.DateOnly), commit
		fmt.Println(r)
		if len(r.Failed) > 0 {
			failed = append(failed, r.Product+" "+r.Version)
		}
		if err := keep(store, r); err != nil { // after each, as a run is long
			return nil, err
		}
	}
	return failed, nil
}

// output is what a program prints, without spaces around it.
func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
