//go:build !unix

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "run",
		Short:              "Run a command while holding a lock (on Unix)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("locker run needs process groups and signals as Unix has them; locker hold KEY holds a lock for a script")
		},
	}
}

func endBy(int) {}

func helper([]string) (code int, ok bool) { return 0, false }
