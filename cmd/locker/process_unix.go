//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// process is COMMAND, with a process group of its own: what is sent to the group reaches
// what COMMAND has started as well. Beside it is a guard, a process that outlives a
// locker that is killed, and stops the group in its stead.
type process struct {
	name    string
	pid     int
	guard   *os.File         // closed without dismiss when this process dies
	signals <-chan os.Signal // to locker
	stopped atomic.Int32     // the signal that has stopped COMMAND; 0 while COMMAND runs
	stops   chan struct{}    // receives after each stop
	ended   chan syscall.WaitStatus
	asked   bool             // to stop, by Ctrl-Z
	overdue <-chan time.Time // fires when COMMAND has had its time to stop
	given   bool             // the terminal
	hungUp  bool             // by stopInBackground
	lost    bool             // the lock: COMMAND is being stopped
}

// start starts COMMAND, by a locker that becomes it once the guard knows of it: so there
// is no moment in which COMMAND runs and locker can be killed unnoticed.
func start(path string, args, env []string, grace time.Duration, signals <-chan os.Signal) (*process, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	guard, err := startGuard(self, grace)
	if err != nil {
		return nil, fmt.Errorf("cannot start the guard of %s: %w", path, err)
	}
	word, say, err := os.Pipe()
	if err != nil {
		_ = guard.Close()
		return nil, err
	}
	defer say.Close()
	defer word.Close()
	started, err := os.StartProcess(self, append([]string{"locker", commandArg, path}, args...), &os.ProcAttr{
		Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, word}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		_ = guard.Close()
		return nil, err
	}
	p := &process{
		name: args[0], pid: started.Pid, guard: guard, signals: signals, stops: make(chan struct{}, 1), ended: make(chan syscall.WaitStatus, 1),
	}
	_ = started.Release() // wait waits for it: it is to see that COMMAND was stopped, too
	_, _ = fmt.Fprintln(guard, p.pid)
	_, _ = fmt.Fprintln(say, "go")
	go p.wait()
	return p, nil
}

// executable is this program's file. Linux has it even if it was deleted or replaced while
// locker waited.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// endBy ends the process by a signal, as a shell wants it: it stops a loop of commands
// when one has ended by SIGINT, but not for its exit code.
func endBy(code int) {
	if code == exitInterrupted {
		signal.Reset(os.Interrupt)
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		time.Sleep(time.Second) // it comes a little later
	}
}

// helper runs the program of a locker that another one has started as its guard.
func helper(args []string) (code int, ok bool) {
	switch {
	case len(args) == 3 && args[1] == guardArg:
		guard(os.Stdin, args[2])
		return 0, true
	case len(args) > 3 && args[1] == commandArg:
		return become(args[2], args[3:]), true
	}
	return 0, false
}

// commandArg is the first argument of a locker that is to become COMMAND.
const commandArg = "command of a process group"

// become waits for the word on descriptor 3, and becomes COMMAND. It returns an exit code.
func become(path string, args []string) int {
	word := os.NewFile(3, "word")
	syscall.CloseOnExec(3)
	if n, _ := word.Read(make([]byte, 1)); n == 0 {
		return exitCannotRun // locker is gone
	}
	err := syscall.Exec(path, args, os.Environ())
	fmt.Fprintf(os.Stderr, "locker: %s cannot be run: %v\n", path, err)
	return exitCannotRun
}

// signal sends s to the group.
func (p *process) signal(s syscall.Signal) {
	if s == syscall.SIGCONT {
		p.stopped.Store(0)
	}
	_ = syscall.Kill(-p.pid, s)
}

// pass passes a signal on. One that is to end COMMAND continues it, too: it would not be
// delivered to one that is stopped.
func (p *process) pass(s syscall.Signal) {
	p.signal(s)
	if ends(s) {
		p.signal(syscall.SIGCONT)
	}
}

// ends reports whether a signal is to end COMMAND.
func ends(s syscall.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGTERM
}

// continues is WCONTINUED, where Wait4 reports in a known form that COMMAND goes on. Elsewhere
// locker knows it for its own SIGCONT only.
var continues = map[string]int{"linux": 8, "darwin": 0x10}[runtime.GOOS]

func (p *process) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.pid, &status, syscall.WUNTRACED|continues, nil)
		by := syscall.Signal(status >> 8 & 0xff) // WaitStatus.StopSignal does not know SIGSTOP on BSD and macOS
		switch {
		case err == syscall.EINTR:
		case err != nil || status.Exited() || status.Signaled():
			p.stopped.Store(0)
			p.ended <- status
			return
		case by == 0xff || by == syscall.SIGCONT: // on Linux, on macOS: COMMAND goes on
			p.stopped.Store(0)
		default:
			p.stopped.Store(int32(by))
			select {
			case p.stops <- struct{}{}:
			default:
			}
		}
	}
}

// stop stops the group. Whatever happens to this process meanwhile, the guard kills the group when the grace is over.
func (p *process) stop(grace time.Duration) {
	_, _ = fmt.Fprintln(p.guard, grace)
	stop(p.pid, grace)
}

// dismiss ends the guard: there is no more to be stopped.
func (p *process) dismiss() {
	_, _ = fmt.Fprintln(p.guard, "dismissed")
	_ = p.guard.Close()
}

// stop asks the group to stop, and kills the rest after the grace. It polls: the
// system has no event for an empty group.
func stop(group int, grace time.Duration) {
	_ = syscall.Kill(-group, syscall.SIGTERM)
	_ = syscall.Kill(-group, syscall.SIGCONT) // one that is stopped would not see the other
	for end := time.Now().Add(grace); time.Now().Before(end); time.Sleep(min(50*time.Millisecond, time.Until(end))) {
		if syscall.Kill(-group, 0) == syscall.ESRCH {
			return
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}

// guardArg is the first argument of a locker that is a guard.
const guardArg = "guard of a process group"

// startGuard starts a guard, in a session of its own: no signal for the others is for it.
func startGuard(self string, grace time.Duration) (*os.File, error) {
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

// guard runs the program of a guard.
func guard(pipe io.Reader, grace string) {
	signal.Ignore(passedOn...)
	wait, err := time.ParseDuration(grace)
	if err == nil {
		untilDismissed(pipe, wait)
	}
}

// untilDismissed reads lines: the number of the group, the grace that is left if the lock is lost, and a word that
// dismisses it. If the pipe ends without that word, locker is gone, and the group is stopped.
func untilDismissed(pipe io.Reader, grace time.Duration) {
	lines := bufio.NewScanner(pipe)
	lines.Scan()
	group, err := strconv.Atoi(lines.Text())
	if err != nil || group < 2 {
		return
	}
	var end time.Time
	for lines.Scan() {
		left, err := time.ParseDuration(lines.Text())
		if err != nil {
			return
		}
		end = time.Now().Add(left)
	}
	if !end.IsZero() {
		grace = time.Until(end)
	}
	stop(group, grace)
}
