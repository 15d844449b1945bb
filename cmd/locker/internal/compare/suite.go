package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/redlock"
)

// The suite of each strategy runs in a process of its own: some of its cases count
// goroutines and memory.

// suiteArg is the first argument of such a process. Its jobs come by stdin, whose end
// is the end of the process; its results go to stdout.
const suiteArg = "conformance suite of a strategy"

// childOf names the strategy for the processes that the suite starts.
const childOf = "LOCKER_COMPARE_STRATEGY"

// job is the work of such a process.
type job struct {
	Name  string
	Own   bool
	Embed bool // the suite is to have servers of its own
	URLs  []string
	Mark  string
	Quick bool
	Only  string
}

// message is a line of its output: the number of cases first, then each result, and the seed at last.
type message struct {
	Cases  int                 `json:",omitempty"`
	Result *conformance.Result `json:",omitempty"`
	Report *conformance.Report `json:",omitempty"`
	Error  string              `json:",omitempty"`
}

// parallel is how many cases run at the same time; most wait most of the time.
const parallel = 12

// Serve does what this program was started for by itself, if it was.
func Serve(args []string) (served bool) {
	if name := os.Getenv(childOf); name != "" && (len(args) < 2 || args[1] != suiteArg) {
		c, err := find(name)
		switch {
		case err != nil:
		case c.single.New == nil:
			redisconformance.ServeQuorum(redlock.New)
		default:
			redisconformance.Serve(c.single.New)
		}
	}
	if len(args) != 2 || args[1] != suiteArg {
		return false
	}
	signal.Ignore(os.Interrupt, syscall.SIGHUP) // the parent has them, too
	signal.Ignore(syscall.SIGPIPE)              // when the parent is gone, there is something to be cleaned up
	in := json.NewDecoder(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	var j job
	if err := in.Decode(&j); err != nil {
		return true
	}
	ctx, cancel := context.WithCancel(context.Background())
	orphaned := make(chan bool, 1)
	go func() {
		words, _ := io.ReadAll(io.MultiReader(in.Buffered(), os.Stdin))
		cancel()
		if strings.Contains(string(words), stopWord) {
			time.Sleep(grace)
			os.Exit(1) // the parent cleans up
		}
		orphaned <- true
	}()
	err := j.run(ctx, func(m message) { _ = out.Encode(m) })
	if err != nil {
		_ = out.Encode(message{Error: err.Error()})
	}
	select {
	case <-orphaned:
		if !j.Own && !j.Embed {
			_ = (&stores{urls: j.URLs, mark: j.Mark}).cleanUp(context.Background())
		}
	default:
	}
	return true
}

// stopWord is the last line of a parent that ends in order, before it closes stdin.
const stopWord = "stop"

// grace is how long cases have to end when all is interrupted; their servers die with
// the process.
const grace = 3 * time.Second

func (j job) run(ctx context.Context, say func(message)) error {
	if err := os.Setenv(childOf, j.Name); err != nil {
		return err
	}
	s := &stores{own: j.Own, urls: j.URLs, mark: j.Mark, stop: func() {}}
	if j.Embed {
		if err := s.startEmbedded(); err != nil {
			return err
		}
	}
	defer func() { s.stop() }()
	harness, err := s.harness(j.Name)
	if err != nil {
		return err
	}
	opts := []conformance.Option{conformance.WithParallel(parallel)}
	if j.Embed { // it has the same processor
		opts[0] = conformance.WithParallel(parallel / 4)
	}
	if j.Only != "" {
		opts = append(opts, conformance.WithOnly(j.Only))
	}
	if j.Quick || j.Embed {
		opts = append(opts, conformance.WithoutSlow())
	}
	cases := 0
	for _, c := range conformance.Cases() {
		if reason := notEmbedded(c); j.Embed && reason != "" {
			opts = append(opts, conformance.WithSkip(c.Group+"/"+c.Name, reason))
		} else if !c.Locker && !(c.Slow && (j.Quick || j.Embed)) {
			cases++
		}
	}
	say(message{Cases: cases})
	report, err := conformance.Check(ctx, harness, func(r conformance.Result) { say(message{Result: &r}) }, opts...)
	if err != nil {
		return err
	}
	say(message{Report: &report})
	return nil
}

// notEmbedded says why a case is left out on an embedded server, if it is.
func notEmbedded(c conformance.Case) string {
	switch c.Name {
	case "HandOversShareTurns":
		return "an embedded server is too slow for turns of some milliseconds"
	case "LocalStateIsBounded":
		return "an embedded server's memory would be counted, too"
	case "ForeignThingsConflict", "ForeignLocksAreHeld", "ForceUnlockOfThingsIsConflict":
		return "an embedded server cannot show what is at a key"
	}
	if c.Group == "load" {
		return "an embedded server is too slow for hundreds of callers"
	}
	return ""
}

// suite runs the suite of a strategy in a process of its own. done is called when one
// more of so many cases is.
func (s *stores) suite(ctx context.Context, name string, o Options, done func(of int, failed bool)) (*Suite, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, suiteArg)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = stdin.Close()
		_ = cmd.Wait()
		redistest.RemoveFilesOf(cmd.Process.Pid)
	}()
	defer context.AfterFunc(ctx, func() {
		_, _ = io.WriteString(stdin, stopWord)
		_ = stdin.Close()
	})()
	if err := json.NewEncoder(stdin).Encode(job{Name: name, Own: s.own, Embed: s.embed, URLs: s.urls, Mark: s.mark, Quick: o.Quick, Only: o.Only}); err != nil {
		return nil, err
	}
	for in, of := json.NewDecoder(stdout), 0; ; {
		var m message
		if err := in.Decode(&m); err != nil {
			return nil, errors.Join(ctx.Err(), fmt.Errorf("the suite ended early: %w: %s", err, tail(stderr.String())))
		}
		switch {
		case m.Error != "":
			return nil, errors.New(m.Error)
		case m.Report != nil:
			return suiteOf(*m.Report), ctx.Err()
		case m.Cases > 0:
			of = m.Cases
		case m.Result != nil:
			done(of, m.Result.Outcome == conformance.Failed)
		}
	}
}

// tail is the end of what a process has said.
func tail(s string) string { return s[max(0, len(s)-1000):] }
