// Command matrix runs the tests of the strategies on other servers than those installed, and
// writes docs/compatibility.md.
//
//	go run ./internal/test/matrix -docs docs /opt/redis-7.4/redis-server /opt/pg17/bin/postgres
//	make matrix SERVERS="/opt/redis-7.4/redis-server /opt/pg17/bin/postgres"
//
// A server is the path of its program: redis-server, valkey-server, keydb-server, postgres, mariadbd,
// mysqld or etcd. The program is asked for its version. Results are kept in results.json beside this file, one for each
// version; a run replaces the results of the versions that it was given. The exit code is 1 if a
// test failed.
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
	for _, program := range flags.Args() {
		s, err := identify(ctx, program)
		if err != nil {
			return err
		}
		fmt.Printf("%s %s ...\n", s.kind.product, s.version)
		r := s.test(ctx, root, *all)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.Date, r.Commit = time.Now().UTC().Format(time.DateOnly), commit
		fmt.Println(r)
		if len(r.Failed) > 0 {
			failed = append(failed, r.Product+" "+r.Version)
		}
		if err := keep(store, r); err != nil { // after each, as a run is long
			return err
		}
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

// output is what a program prints, without spaces around it.
func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
