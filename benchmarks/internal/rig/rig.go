// Package rig is shared by the benchmarks that are programs.
package rig

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
)

// Main calls run with the arguments of the program. Ctrl-C ends run's context. An error is printed after the program's name.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Stage is the testing.TB for which redistest and faultproxy start their servers.
type Stage struct {
	testing.TB // nil: the servers need no more than is here
	Ctx        context.Context
	cleanups   []func()
}

// Helper implements [testing.TB].
func (s *Stage) Helper() {}

// Context implements [testing.TB].
func (s *Stage) Context() context.Context {
	if s.Ctx == nil {
		return context.Background()
	}
	return s.Ctx
}

// Cleanup implements [testing.TB].
func (s *Stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Fatalf implements [testing.TB].
func (s *Stage) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// End calls what Cleanup was given, the last one first.
func (s *Stage) End() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// Markdown returns a table that reads as plain text, too. The first row is its head.
func Markdown(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	for i, row := range rows {
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(row, "\t| "))
		if i == 0 {
			fmt.Fprintf(w, "|---%s\t|\n", strings.Repeat("\t|---:", len(row)-1))
		}
	}
	_ = w.Flush() // a Builder takes everything
	return b.String()
}
