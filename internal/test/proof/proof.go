// Package proof runs targets of the Makefile that test the promises, and records each run for docs/verification.md.
package proof

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Run is the last run of a target.
type Run struct {
	Target       string
	Settings     string `json:",omitempty"` // the environment variables that change what the target runs
	Date, Commit string
	Seconds      int
	Counts
	Succeeded bool // what make reported
}

// settings lists the variables that change what a target runs.
var settings = []string{"LOCKER_REDIS_SERVER", "LOCKER_POSTGRES", "LOCKER_MYSQL", "LOCKER_MYSQL_SERVER", "LOCKER_ETCD_SERVER", "LOCKER_CONFORMANCE_SEED",
	"SEEDS", "SEED", "PLANT", "COUNT", "DURATION", "SOAK_FLAGS", "FUZZTIME"}

// recorded lists the files that hold records. A change of these files alone does not make a run -dirty.
var recorded = []string{"conformance/testdata/proof.json", "internal/test/soak/runs.json", "docs/verification.md", "docs/cases.md"}

// Command returns the command that ran.
func (r Run) Command() string { return strings.TrimSpace(r.Settings + " make " + r.Target) }

// Minutes returns how long the run took.
func (r Run) Minutes() int { return (r.Seconds + 30) / 60 }

// Runs returns the runs in a file.
func Runs(file string) (all []Run, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// recordIn adds the run to a file, or replaces the older run of its target.
func (r Run) recordIn(file string) error {
	all, err := Runs(file)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(old Run) bool { return old.Target == r.Target }); i >= 0 {
		all[i] = r
	} else {
		all = append(all, r)
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Record runs the targets, one after the other, writes their output to out, and adds each run to the file. It reports an error if
// a target failed, after all have run. The working directory is the root of the repository.
func Record(ctx context.Context, file string, targets []string, out io.Writer) error {
	if _, err := Runs(file); err != nil { // before hours of tests
		return err
	}
	if len(targets) == 0 {
		return errors.New("want targets of the Makefile, got none")
	}
	for _, target := range targets {
		if said, err := exec.CommandContext(ctx, "make", "-n", target).CombinedOutput(); err != nil {
			return fmt.Errorf("want targets of the Makefile, got %q: %w: %s", target, err, bytes.TrimSpace(said))
		}
	}
	var failed []string
	for _, target := range targets {
		before, err := commit(ctx)
		if err != nil {
			return fmt.Errorf("want a checkout of the repository: %w", err)
		}
		r, err := run(ctx, target, out)
		if err != nil {
			return err
		}
		if r.Commit, err = commit(ctx); err != nil {
			return err
		}
		if r.Commit != before { // nobody knows which files were tested
			r.Commit = strings.TrimSuffix(before, "-dirty") + "-dirty"
		}
		if err := r.recordIn(file); err != nil {
			return err
		}
		if !r.Succeeded {
			failed = append(failed, target)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("make failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// run runs a target. No test comes from the cache of the go command. A run that ctx ends is no run.
func run(ctx context.Context, target string, out io.Writer) (Run, error) {
	began := time.Now()
	r := Run{Target: target, Date: began.UTC().Format(time.DateOnly)}
	var set []string
	for _, name := range settings {
		if value := os.Getenv(name); value != "" {
			set = append(set, name+"="+value)
		}
	}
	r.Settings = strings.Join(set, " ")
	cmd := exec.CommandContext(ctx, "make", target)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -count=1"))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	// Processes that make has started may outlive make, and keep the pipe open.
	defer context.AfterFunc(ctx, func() { _ = stdout.Close() })()
	r.Counts = count(bufio.NewReader(io.TeeReader(stdout, out)))
	err = cmd.Wait()
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return r, err
	}
	r.Succeeded, r.Seconds = err == nil, int(time.Since(began).Seconds())
	return r, nil
}

// commit describes HEAD, with -dirty if a file differs from it that is no record.
func commit(ctx context.Context) (string, error) {
	head, err := exec.CommandContext(ctx, "git", "describe", "--always").Output()
	if err != nil {
		return "", err
	}
	args := []string{"status", "--porcelain", "--", "."}
	for _, file := range recorded {
		args = append(args, ":(exclude)"+file)
	}
	changes, err := exec.CommandContext(ctx, "git", args...).Output()
	described := string(bytes.TrimSpace(head))
	if len(changes) > 0 {
		described += "-dirty"
	}
	return described, err
}
