//go:build unix

package report

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Report is what one program runs.
type Report struct {
	Store    string        // on the page
	Dir      string        // of the program's module, in the repository
	Program  string        // in Dir
	Server   func() string // what the servers are
	Subjects []Subject
	Cases    []Case
}

// Main is the program. It exits with 0 if the faults passed as they have to with each subject of ours.
func (rep Report) Main() int {
	Serve(rep.Subjects)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := rep.run(ctx, os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		return 1
	}
	return 0
}

func (rep Report) run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	which := flags.String("case", "", "only these cases, e.g. partition,forget")
	who := flags.String("only", "", "only these subjects, e.g. setnx,redsync")
	page := flags.String("docs", "", "a page to write everything into, between the marks of make report")
	pauses := flags.Int("pauses", 5, "processes that are paused, for each subject")
	atOnce := flags.Int("at-once", 6, "subjects at the same time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cases := slices.DeleteFunc(slices.Clone(rep.Cases), func(c Case) bool { return left(*which, c.Name) })
	subjects := slices.DeleteFunc(slices.Clone(rep.Subjects), func(s Subject) bool { return left(*who, s.Name) })
	if len(cases) == 0 || len(subjects) == 0 || *pauses < 1 || *atOnce < 1 || *page != "" && *which+*who != "" {
		return errors.New("want cases and subjects that there are, -pauses and -at-once of 1 or more, and -docs for all of them")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s. The TTL is %.0f s.\n\n%s\n", rep.Server(), time.Now().UTC().Format(time.DateOnly), TTL.Seconds(), subjectsTable(subjects, Commit(ctx), Version))
	var errs []error
	var results [][]Outcome
	for _, c := range cases {
		all := c.All(ctx, subjects, *pauses, *atOnce)
		results = append(results, all)
		errs = append(errs, c.Verdict(all))
	}
	fmt.Fprintf(&b, "%s\n", summary(cases, subjects, results))
	for i, c := range cases {
		fmt.Fprintf(&b, "%s\n", c.Section(results[i], rep.command()))
	}
	if err := errors.Join(errs...); err != nil || *page == "" {
		fmt.Fprint(out, b.String())
		return err
	}
	return Insert(*page, rep.Store, b.String())
}

// command runs the program.
func (rep Report) command() string { return fmt.Sprintf("go -C %s run %s", rep.Dir, rep.Program) }

// left reports whether a list leaves a name out.
func left(list, name string) bool {
	return list != "" && !slices.Contains(strings.Split(list, ","), name)
}

// Commit returns the commit of this checkout.
func Commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Version returns the version of a module that this program is built with.
func Version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for i := 0; info != nil && i < len(info.Deps); i++ {
		if info.Deps[i].Path == module {
			return info.Deps[i].Version
		}
	}
	return "unknown"
}
