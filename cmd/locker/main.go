// Command locker brings distributed locks to the command line: it runs a command while it holds
// a lock, shows who holds which lock, asks a holder to give a lock back, and takes locks from holders that are gone.
//
//	locker run --url blpop+redis://localhost:6379 --key deploy -- ./deploy.sh
//
// See locker --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/distlock/locker/cmd/locker/internal/compare"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func main() {
	if code, ok := helper(os.Args); ok {
		os.Exit(code)
	}
	compare.Serve()
	redis.SetLogger(noLog{}) // the command itself prints each error that matters
	code := execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	endBy(code)
	os.Exit(code)
}

// noLog is for go-redis, which would log each failed dial.
type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

// execute runs the command line args and returns the exit code.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "locker",
		Short:         "Distributed locks for the command line",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		Args:          cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_ = c.Help()
			return &exit{code: exitUsage}
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	})
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(runCommand(), inspectCommand(), unlockCommand(), askCommand(), compareCommand(), holdCommand(), versionCommand(), manCommand())
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var e *exit
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &e):
		e = &exit{code: exitUsage, err: err}
	}
	if e.err != nil {
		fmt.Fprintln(stderr, "locker:", strings.TrimPrefix(e.err.Error(), "locker: "))
	}
	return e.code
}
