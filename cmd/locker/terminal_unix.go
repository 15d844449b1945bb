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

// halted deals with a stop of COMMAND.
func (p *process) halted(by syscall.Signal) {
	switch {
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
	case by == syscall.SIGTSTP && p.given: // Ctrl-Z
		p.suspend(true)
	}
}

// stopInBackground does to locker's group what the system does to a background group that
// wants the terminal: by stops it. Its shell sees that and can continue it in the foreground;
// SIGCONT is passed on, and COMMAND asks again. Where there is no such shell, COMMAND gets
// what the system sends to stopped groups that nobody can continue, once.
//
// Nothing waits for the stop: where the system leaves it out, signals are passed on.
func (p *process) stopInBackground(by syscall.Signal) {
	own, err := unix.Getsid(0)
	parents, err2 := unix.Getsid(os.Getppid())
	if shell := err == nil && err2 == nil && own == parents && own != os.Getpid(); shell {
		_ = syscall.Kill(0, by)
		return
	}
	if !p.hungUp {
		p.hungUp = true
		p.pass(syscall.SIGHUP)
	}
}

// suspend stops COMMAND, which may be stopped already, and then locker, until the shell
// continues them.
func (p *process) suspend(stopped bool) {
	if sid, err := unix.Getsid(0); err != nil || sid == os.Getpid() {
		p.signal(syscall.SIGCONT) // there is no shell to do that
		return
	}
	p.signal(syscall.SIGSTOP)
	if !stopped {
		p.awaitStop()
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGSTOP)
	<-continued // the stop comes a little later; COMMAND is continued by the same signal, passed on
}

// awaitStop waits for the stop of COMMAND, which comes after the signal: a thread of COMMAND
// may write until then, and the output comes before the prompt of the shell. A process that
// starts another one may not stop (vfork), so the wait is short.
func (p *process) awaitStop() {
	select {
	case <-p.stops:
	case status := <-p.ended:
		p.ended <- status
	case <-time.After(time.Second):
	}
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
