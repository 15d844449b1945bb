package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "%s %s\n", c.Root().Name(), version())
		},
	}
}

// version returns the version of the module, with the revision that it was built from if that is
// known, and what built it for what.
func version() string {
	v, revision := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(info.Main.Version, v)
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = " " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				revision += " (modified)"
			}
		}
	}
	return fmt.Sprintf("%s%s %s %s/%s", v, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
