//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// COMMAND's group is not the one that has the terminal: what else is in a pipeline with
// locker, such as a pager, keeps it. COMMAND gets it as soon as it wants to read from it or
// to change it, for which the system stops it.

// stopsBy is the time that COMMAND has to stop by itself after Ctrl-Z. Then it is stopped by force: it may ignore Ctrl-Z, and
// a shell that starts a process at that moment cannot stop.
const stopsBy = time.Second

// take deals with a signal to locker: COMMAND gets it, too. After Ctrl-Z (SIGTSTP) locker stops when
// COMMAND has stopped: so the output of COMMAND comes before the shell's prompt, a COMMAND
// that ends instead keeps its exit code, and a COMMAND that is another locker can stop its own
// COMMAND first. SIGCONT and a signal that ends COMMAND take the Ctrl-Z back.
func (p *process) take(got os.Signal) {
	s := got.(syscall.Signal)
	switch {
	case s == syscall.SIGTSTP:
		p.asked, p.overdue = true, time.After(stopsBy)
	case s == syscall.SIGCONT || ends(s):
		p.asked = false
	}
	p.pass(s)
}

// halted deals with a stop of COMMAND.
func (p *process) halted() {
	switch by := syscall.Signal(p.stopped.Load()); {
	case by == 0: // it goes on already
	case p.asked && !p.lost:
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
	case by == syscall.SIGTSTP && p.given && !p.lost: // Ctrl-Z was for COMMAND alone, as it has the terminal
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

// suspend stops locker, after COMMAND has stopped, until the shell continues both. Where no shell
// can do that, COMMAND goes on at once.
func (p *process) suspend() {
	for len(p.signals) > 0 {
		p.take(<-p.signals)
	}
	if !p.asked || p.lost {
		return
	}
	if shell() {
		p.signal(syscall.SIGSTOP) // for processes of the group that have not stopped
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

// shell reports whether a shell can continue a stopped locker. Such a shell runs each job in a
// process group of its own, which is not the group of the session's leader.
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
