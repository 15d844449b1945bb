//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// runFlags are the flags of locker run.
type runFlags struct {
	storeFlags
	lock            lockFlags
	key             string
	maxHold         time.Duration // 0: as configured
	grace           time.Duration // negative: as much as the TTL has room for
	margin          time.Duration // of the lease: the grace, and time for the kill
	conflictCode    int
	warn, ask       string // names of signals; "": none
	warning, asking syscall.Signal
	verbose         bool
	ended           bool // the lock, by itself: there is nothing to be given back
}

const runLong = `Runs COMMAND while holding the lock KEY, and gives the lock back when COMMAND ends.

` + storeHelp + `

COMMAND finds the name of the lock in LOCKER_KEY, and the fencing token in LOCKER_TOKEN. The
token is a number that is greater for each later holder. If a resource refuses a number that
is smaller than the last one, a COMMAND that was stopped for too long can do no harm.
Permits (--of) have no token.

` + lockHelp + `

locker passes the signals HUP, INT, QUIT, TERM, USR1 and USR2 on to COMMAND and its process
group. If COMMAND is stopped, the first four also continue it. Ctrl-Z stops COMMAND and
then locker. Until fg continues them, nothing renews the lock.

If the lock cannot be renewed, or if locker itself is killed, COMMAND and what it has
started get SIGTERM, and after --grace SIGKILL. This happens before the lock ends and
another holder can have it. The grace is a part of the TTL, two fifths at most. Where the
lock is taken by force, or its key is deleted, the next holder may be there before the
grace is over.`

const runCodes = `Exit codes:
  COMMAND's own, or 128 and the number of the signal that ended it, or else
  122  the lock was lost while COMMAND ran
  123  the store could not be used, for the TTL (15s at least) unless --wait says
       otherwise; COMMAND was not run
  124  the lock stayed taken; COMMAND was not run (see --conflict-exit-code)
  125  wrong usage or configuration; COMMAND was not run
  126  COMMAND cannot be run
  127  COMMAND is not found
  128+ and the number of the signal that ended the wait; COMMAND was not run`

func runCommand() *cobra.Command {
	f := runFlags{}
	c := &cobra.Command{
		Use:                   "run --key KEY [flags] -- COMMAND [ARG...]",
		Short:                 "Run a command while holding a lock",
		Long:                  runLong + "\n\n" + runCodes,
		Example:               "  locker run --url blpop+redis://localhost:6379 --key deploy --wait 30s -- ./deploy.sh\n  LOCKER_URL=setnx+redis://localhost locker run --key backup --wait 0 -- pg_dump -f /backup/db",
		DisableFlagsInUseLine: true,
		RunE:                  func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	flags.SetInterspersed(false) // what follows COMMAND is COMMAND's
	f.add(c)
	flags.StringVar(&f.key, "key", "", "name of the lock")
	f.lock.add(c)
	flags.DurationVar(&f.maxHold, "max-hold", 0, "how long COMMAND may hold the lock; then the lock is lost (default as configured, or no end)")
	flags.DurationVar(&f.grace, "grace", -1, "time between SIGTERM and SIGKILL for COMMAND once the lock is lost, two fifths of the TTL at most (default 10s, or a third of the TTL if that is less)")
	flags.IntVar(&f.conflictCode, "conflict-exit-code", exitNotAcquired, "exit `code` if the lock stays taken")
	flags.StringVar(&f.warn, "warn-signal", "", "`signal` for COMMAND, such as USR1, when the lease is at risk: renewals have failed for half of the time to the deadline, or a third of the TTL is left before it")
	flags.StringVar(&f.ask, "ask-signal", "", "`signal` for COMMAND when somebody asks for the lock, as locker ask does")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "report the wait, the lock and trouble with the store on stderr")
	flags.Lookup("grace").DefValue = "0s"
	return c
}

// check finds what is wrong with the flags and COMMAND, before anything is locked.
func (f *runFlags) check(c *cobra.Command, args []string) (path string, err error) {
	wrong := func(format string, args ...any) error {
		return &exit{exitUsage, fmt.Errorf(format+"; see locker run --help", args...)}
	}
	switch {
	case f.key == "":
		return "", wrong("--key is missing: the name of the lock")
	case len(args) == 0:
		return "", wrong("COMMAND is missing: what to run while %q is locked", f.key)
	case f.lock.check(c) != nil:
		return "", wrong("%w", f.lock.check(c))
	case c.Flags().Changed("max-hold") && (f.maxHold <= 0 || f.maxHold > locker.MaxDuration):
		return "", wrong("--max-hold=%v: more than 0s, at most %v", f.maxHold, locker.MaxDuration)
	case f.grace < 0 && c.Flags().Changed("grace"):
		return "", wrong("--grace=%v is negative", f.grace)
	case f.ask != "" && (f.lock.of > 0 || f.lock.shared || f.lock.exclusive):
		return "", wrong("--ask-signal is for locks: holders of permits, readers and writers cannot be asked (--of, --shared, --exclusive)")
	case f.conflictCode < 0 || f.conflictCode > 255:
		return "", wrong("--conflict-exit-code=%d is not from 0 to 255", f.conflictCode)
	}
	for flag, of := range map[string]struct {
		name string
		to   *syscall.Signal
	}{"warn-signal": {f.warn, &f.warning}, "ask-signal": {f.ask, &f.asking}} {
		if of.name == "" {
			continue
		}
		if *of.to = unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(of.name), "SIG")); *of.to == 0 {
			return "", wrong("--%s=%s is no signal; take one such as USR1 or TERM", flag, of.name)
		}
	}
	path, err = exec.LookPath(args[0])
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", &exit{exitCannotRun, err}
	}
	return "", &exit{exitNotFound, err}
}

// configuration returns the library's Config for a locker that runs COMMAND.
func (f *runFlags) configuration(c *cobra.Command, command string) (strategy.Config, error) {
	cfg, err := f.storeFlags.configuration(c)
	cfg.Options = append(cfg.Options, locker.WithMetadata("command", filepath.Base(command)))
	if f.verbose {
		var v verbose
		cfg.Options = append(cfg.Options, locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
			if text := v.inWords(e); text != "" {
				fmt.Fprintf(c.ErrOrStderr(), "locker: %s\n", text)
			}
		})))
	}
	return cfg, err
}

// passedOn are the signals that COMMAND gets as well.
var passedOn = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2}

func (f *runFlags) run(c *cobra.Command, args []string) (err error) {
	path, err := f.check(c, args)
	if err != nil {
		return err
	}
	cfg, err := f.configuration(c, args[0])
	if err != nil {
		return &exit{exitUsage, err}
	}
	if err := f.fit(f.lock.lasts(cfg)); err != nil {
		return err
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a stderr that is gone is no reason to end
	signals := make(chan os.Signal, 16)                     // for as long as the process lives: a late signal must not replace COMMAND's exit code
	for _, s := range passedOn {
		if !signal.Ignored(s) { // by nohup
			signal.Notify(signals, s)
		}
	}

	locks, release, err := f.open(c, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if !f.ended {
			release()
		}
	}()
	patient := time.AfterFunc(tellAfter, func() { f.tellWait(c, locks) })
	lease, err := f.take(c.Context(), locks, strategyOf(cfg), signals)
	patient.Stop()
	if err != nil {
		if errors.Is(err, locker.ErrNotAcquired) {
			err = f.named(c, locks, err)
		}
		return notLocked(err, f.key, f.conflictCode, &f.storeFlags)
	}

	env := slices.DeleteFunc(os.Environ(), func(v string) bool { // of a locker run around this one
		return strings.HasPrefix(v, "LOCKER_KEY=") || strings.HasPrefix(v, "LOCKER_TOKEN=")
	})
	env = append(env, "LOCKER_KEY="+f.key)
	if token := f.lock.token(lease); token != 0 {
		env = append(env, "LOCKER_TOKEN="+strconv.FormatInt(token, 10))
	}
	signal.Notify(signals, syscall.SIGTSTP, syscall.SIGCONT)
	p, err := start(path, args, env, f.grace, signals)
	if err != nil {
		_ = lease.Unlock(c.Context())
		return &exit{exitCannotRun, err}
	}
	return f.attend(c, p, lease)
}

// tellAfter is the length of a wait, and of one command, after which a person is informed.
const tellAfter = 2 * time.Second

// attend passes signals on and stops COMMAND if the lock is lost, until COMMAND has ended.
func (f *runFlags) attend(c *cobra.Command, p *process, lease *locker.Lease) error {
	lost := lease.Lost()
	var atRisk, requested <-chan struct{}
	var listens chan (<-chan struct{})
	if f.warning != 0 {
		atRisk = lease.AtRisk()
	}
	if f.asking != 0 {
		listens = make(chan (<-chan struct{}), 1)
		go func() { listens <- lease.ReleaseRequested() }() // which takes up to a second
	}
	stopped, told := make(chan struct{}), make(chan struct{})
	for {
		select {
		case s := <-p.signals:
			if p.take(s); s == syscall.SIGTSTP {
				p.halted() // COMMAND may be stopped already
			}
		case <-p.stops:
			p.halted()
		case <-p.overdue:
			p.suspend()
		case requested = <-listens:
		case <-requested:
			requested = nil
			p.pass(f.asking)
		case <-atRisk:
			if atRisk = nil; lease.Err() == nil { // else it is lost, which comes next
				p.pass(f.warning)
			}
		case <-lost:
			lost, p.lost = nil, true
			grace := max(0, min(f.grace, time.Until(lease.Deadline())+f.grace)) // the lock lasts so much longer than the lease
			go func() { p.stop(grace); close(stopped) }()
			go func() { // stderr may be stuck
				why := strings.ReplaceAll(strings.TrimPrefix(lease.Err().Error(), "locker: "), "WithMaxHold", "--max-hold")
				fmt.Fprintf(c.ErrOrStderr(), "locker: %s; %s is asked to stop, and killed in %v\n", why, p.name, grace.Round(time.Millisecond))
				close(told)
			}()
		case status := <-p.ended:
			p.retake()
			if lost == nil {
				<-stopped
				p.dismiss()
				ctx, cancel := untilSignal(c.Context(), p.signals)
				_ = lease.Unlock(ctx) // after --max-hold it is still ours to give back
				cancel()
				select {
				case <-told:
				case <-time.After(time.Second):
				}
				return &exit{code: exitLost}
			}
			p.dismiss()
			return f.finish(c, p, lease, status)
		}
	}
}

// untilSignal returns a context that ends when a signal arrives that would have ended COMMAND.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	for len(signals) > 0 { // they were for COMMAND
		<-signals
	}
	go func() {
		for {
			select {
			case s := <-signals:
				if ends(s.(syscall.Signal)) {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// finish gives the lock back, and returns how COMMAND has ended.
func (f *runFlags) finish(c *cobra.Command, p *process, lease *locker.Lease, status syscall.WaitStatus) error {
	ctx, stopWaiting := untilSignal(c.Context(), p.signals)
	defer stopWaiting()
	ctx, cancel := context.WithDeadline(ctx, lease.Deadline()) // then it has ended by itself
	defer cancel()
	err := lease.Unlock(ctx)
	switch {
	case errors.Is(err, locker.ErrLost):
		return &exit{exitLost, fmt.Errorf("%w: while %s ran", err, p.name)}
	case err != nil:
		ends := "has ended by itself"
		f.ended = !time.Now().Before(lease.Deadline())
		if left := time.Until(lease.Deadline().Add(f.margin)).Round(100 * time.Millisecond); left > 0 {
			ends = fmt.Sprintf("ends by itself in %v", left)
		}
		fmt.Fprintf(c.ErrOrStderr(), "locker: %q could not be given back, and %s: %v\n", f.key, ends, cause(err))
	}
	switch {
	case status.Signaled():
		return &exit{code: exitSignal + int(status.Signal())}
	case status.ExitStatus() == 0:
		return nil
	}
	return &exit{code: status.ExitStatus()}
}

// cause is why the store could not be used.
func cause(err error) error {
	var both interface{ Unwrap() []error } // ErrUnavailable, and why
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the store did not answer in time")
	case errors.Is(err, context.Canceled):
		return errors.New("a signal ended the wait for the store")
	case errors.As(err, &both) && len(both.Unwrap()) == 2:
		return both.Unwrap()[1]
	}
	return err
}
