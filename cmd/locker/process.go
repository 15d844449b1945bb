//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is COMMAND, with a process group of its own: what is sent to the group reaches
// what COMMAND has started as well. Beside it is a guard, a process that outlives a
// locker that is killed, and stops the group in its stead.
type process struct {
	name  string
	pid   int
	guard *os.File // closed without a word when this process dies
	ended chan syscall.WaitStatus
}

// start starts COMMAND. If this process has the terminal, COMMAND has it from now on, and
// with it Ctrl-C and Ctrl-Z.
func start(path string, args, env []string, grace time.Duration) (*process, error) {
	guard, err := startGuard(grace)
	if err != nil {
		return nil, fmt.Errorf("cannot start the guard of %s: %w", path, err)
	}
	attr := &syscall.SysProcAttr{Setpgid: true}
	terminal := foreground()
	if terminal {
		attr = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	}
	started, err := os.StartProcess(path, args, &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr})
	if err != nil {
		_ = guard.Close()
		return nil, err
	}
	if terminal {
		signal.Ignore(syscall.SIGTTOU) // or this process were stopped for taking the terminal back
	}
	p := &process{name: args[0], pid: started.Pid, guard: guard, ended: make(chan syscall.WaitStatus, 1)}
	_ = started.Release() // wait waits for it: it is to see that COMMAND was stopped, too
	_, _ = fmt.Fprintln(guard, p.pid)
	go p.wait(terminal)
	return p, nil
}

// signal sends s to the group.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.pid, s) }

func (p *process) wait(terminal bool) {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err == nil && status.Stopped():
			if terminal { // Ctrl-Z: this process stops, too, until the shell continues it
				giveTerminal(syscall.Getpgrp())
				_ = syscall.Kill(0, syscall.SIGSTOP)
				if foreground() {
					giveTerminal(p.pid)
				}
				p.signal(syscall.SIGCONT)
			}
		default:
			if terminal {
				giveTerminal(syscall.Getpgrp())
			}
			_, _ = fmt.Fprintln(p.guard, "it has ended")
			_ = p.guard.Close()
			p.ended <- status
			return
		}
	}
}

// foreground reports whether this process has the terminal at its standard input.
func foreground() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

func giveTerminal(group int) { _ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group) }

// guardArg is the first argument of a locker that is a guard.
const guardArg = "guard of a process group"

// startGuard starts a guard, in a session of its own: no signal for the others is for it.
func startGuard(grace time.Duration) (*os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	guard, err := os.StartProcess(self, []string{"locker", guardArg, grace.String()},
		&os.ProcAttr{Files: []*os.File{r}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	go func() { _, _ = guard.Wait() }()
	return w, nil
}

// guard reads which process group it guards, and that its COMMAND has ended. If the pipe
// ends without that, locker is gone, and the group is stopped.
func guard(pipe io.Reader, grace string) {
	signal.Ignore(passedOn...)
	lines := bufio.NewScanner(pipe)
	lines.Scan()
	group, err := strconv.Atoi(lines.Text())
	wait, err2 := time.ParseDuration(grace)
	if err != nil || err2 != nil || group < 2 || lines.Scan() {
		return
	}
	_ = syscall.Kill(-group, syscall.SIGTERM)
	_ = syscall.Kill(-group, syscall.SIGCONT)
	for end := time.Now().Add(wait); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if syscall.Kill(-group, 0) == syscall.ESRCH {
			return
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}
