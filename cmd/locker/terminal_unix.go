//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// COMMAND's group is not the one that has the terminal: what else is in a pipeline with
// locker, such as a pager, keeps it. COMMAND gets it as soon as it wants to read from it or
// to change it, for which the system stops it.

// take deals with a signal to locker: COMMAND gets it, too. locker stops by Ctrl-Z (SIGTSTP) when
// COMMAND has stopped: so the output of COMMAND comes before the shell's prompt, a COMMAND
// that ends instead keeps its exit code, and another locker that is COMMAND can stop its own.
// By SIGCONT a shell continues a job.
func (p *process) take(s os.Signal) {
	if s == syscall.SIGTSTP || s == syscall.SIGCONT {
		p.asked = s == syscall.SIGTSTP
	}
	p.pass(s.(syscall.Signal))
}

// halted deals with a stop of COMMAND.
func (p *process) halted() {
	switch by := syscall.Signal(p.stopped.Load()); {
	case by == 0: // it goes on already
	case p.asked:
		p.suspend()
	case by == syscall.SIGTTIN || by == syscall.SIGTTOU:
		background := false
		given := terminal(func(fd, group int) bool {
			background = group != syscall.Getpgrp() && group != p.pid
			return group == syscall.Getpgrp() && give(fd, p.pid)
		})
		switch {
		case given:
			p.given = true
			p.signal(syscall.SIGCONT)
		case background:
			p.stopInBackground(by)
		}
	case by == syscall.SIGTSTP && p.given: // Ctrl-Z was for COMMAND alone, as it has the terminal
		_ = syscall.Kill(0, by)
	}
}

// stopInBackground does to locker's group what the system does to a background group that
// wants the terminal: by stops it. Its shell sees that and can continue it in the foreground;
// SIGCONT is passed on, and COMMAND asks again. Where there is no such shell, COMMAND gets
// what the system sends to stopped groups that nobody can continue, once.
//
// Nothing waits for the stop: where the system leaves it out, signals are passed on.
func (p *process) stopInBackground(by syscall.Signal) {
	if shell() {
		_ = syscall.Kill(0, by)
		return
	}
	if !p.hungUp {
		p.hungUp = true
		p.pass(syscall.SIGHUP)
	}
}

// suspend stops locker, behind COMMAND, until the shell continues them. Where there is no such
// shell, COMMAND goes on at once.
func (p *process) suspend() {
	for len(p.signals) > 0 {
		p.take(<-p.signals)
	}
	if !p.asked { // SIGCONT has come
		return
	}
	if shell() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		for s := os.Signal(nil); s != syscall.SIGCONT; { // the stop comes a little later
			if s = <-p.signals; s != syscall.SIGTSTP { // SIGCONT undoes a second Ctrl-Z
				p.pass(s.(syscall.Signal))
			}
		}
	}
	p.asked = false
	p.signal(syscall.SIGCONT)
}

// shell reports whether there is one that can continue locker when it is stopped: it has given
// locker a group of its own, in its session.
func shell() bool {
	own, err := unix.Getsid(0)
	parents, err2 := unix.Getsid(os.Getppid())
	return err == nil && err2 == nil && own == parents && own != syscall.Getpgrp()
}

// retake takes the terminal back from COMMAND.
func (p *process) retake() {
	if !p.given {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // or locker were stopped for it
	terminal(func(fd, group int) bool { return group == p.pid && give(fd, syscall.Getpgrp()) })
	p.given = false
}

// terminal calls f with the terminal and the process group that has it, if there is one.
func terminal(f func(fd, group int) bool) bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && f(int(tty.Fd()), group)
}

func give(fd, group int) bool { return unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, group) == nil }
