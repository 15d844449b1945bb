package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Long: `Writes a manual page for each command into DIR, which it makes if need be:

  locker man ~/.local/share/man/man1 && man locker-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			c.Root().DisableAutoGenTag = true // a build can be repeated
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Title: "LOCKER", Section: "1", Source: "locker", Manual: "locker"}, args[0])
		},
	}
}
