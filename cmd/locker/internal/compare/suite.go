package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
)

// The suite of each strategy runs in a process of its own: some of its cases count
// goroutines and memory.

// suiteKind is the kind of such a process.
const suiteKind = "locker compare suite"

// childOf names the strategy for the processes that the suite starts.
const childOf = "LOCKER_COMPARE_STRATEGY"

// seedEnv is the variable that the suite takes its seed from.
const seedEnv = "LOCKER_CONFORMANCE_SEED"

// job is the work of such a process.
type job struct {
	Name  string
	Own   bool
	Embed bool // the suite is to have servers of its own
	URLs  []string
	Mark  string
	Clean []string // URLs of the Redis servers where it deletes all with Mark if its parent dies
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

// Serve does not return in a process that this program was started for by itself, nor in one
// that the suite of a strategy has started.
func Serve() {
	child.Serve(contenderKind, contend)
	child.Serve(suiteKind, func(parent child.Parent, j job) error { return j.serve(parent) })
	c, err := find(os.Getenv(childOf))
	switch {
	case err != nil:
	case c.single.New == nil:
		redisconformance.ServeQuorum(redlock.New)
	default:
		redisconformance.Serve(c.single.New)
	}
}

func (j job) serve(parent child.Parent) error {
	out := json.NewEncoder(parent)
	ctx, cancel := context.WithCancel(context.Background())
	orphaned := make(chan bool, 1)
	go func() {
		words, _ := io.ReadAll(parent)
		cancel()
		if string(words) == stopWord {
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
			_ = (&stores{urls: j.Clean, mark: j.Mark}).cleanUp(context.Background())
		}
	default:
	}
	return nil
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
	harnesses, err := s.harnesses(ctx, j.Name)
	if err != nil {
		return err
	}
	opts := []conformance.Option{conformance.WithParallel(parallel)}
	if j.Embed { // it has the same processor
		opts[0] = conformance.WithParallel(parallel / 4)
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
	report, err := check(ctx, harnesses, func(r conformance.Result) { say(message{Result: &r}) }, j.Only, opts)
	if err != nil {
		return err
	}
	say(message{Report: &report})
	return nil
}

// harnesses returns what the suite of a strategy runs on; what one harness leaves out runs on the next one.
// On servers of its own, cases of redlock run without proxies first, whose memory would count, and with time for
// each node: no node is to be absent because the suites of all strategies share the machine.
func (s *stores) harnesses(ctx context.Context, name string) ([]conformance.HarnessMaker, error) {
	c, err := find(name)
	if err != nil {
		return nil, err
	}
	if c.single.New == nil {
		q := redisconformance.Quorum{Name: name, New: redlock.New, Nodes: quorumNodes}
		if !s.own {
			q.Mark = s.mark
			q.Servers, err = s.nodes()
			return []conformance.HarnessMaker{q.Harness}, err
		}
		direct := q
		direct.Direct, direct.New = true, func(nodes []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
			return redlock.New(nodes, append([]locker.Option{redlock.WithNodeTimeout(10 * time.Second)}, opts...)...)
		}
		return []conformance.HarnessMaker{direct.Harness, q.Harness}, nil
	}
	if !s.own {
		c.single.Mark = s.mark
		if c.single.Server, err = options(s.urls[0]); err != nil {
			return nil, err
		}
	}
	claim := c.on(version(ctx, s.urls[0]))
	return []conformance.HarnessMaker{claim.Harness}, nil
}

// check runs the cases on the first harness, and those that it leaves out on the next one. only is an expression for the
// cases; "" is for all.
func check(ctx context.Context, on []conformance.HarnessMaker, progress func(conformance.Result), only string, opts []conformance.Option) (conformance.Report, error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return conformance.Report{}, err
	}
	with := slices.Clip(opts)
	if only != "" {
		with = append(with, conformance.WithOnly(only))
	}
	report, err := conformance.Check(ctx, on[0], progress, with...)
	if err != nil || len(on) == 1 {
		return report, err
	}
	var ran []conformance.Result
	var leftOut []string
	for _, r := range report.Results {
		switch {
		case r.Outcome != conformance.Skipped:
			ran = append(ran, r)
		case wanted.MatchString(r.Group + "/" + r.Name):
			leftOut = append(leftOut, regexp.QuoteMeta(r.Group+"/"+r.Name))
		}
	}
	if len(leftOut) == 0 {
		return report, nil
	}
	if err := os.Setenv(seedEnv, strconv.FormatUint(report.Seed, 10)); err != nil { // the report has one seed
		return report, err
	}
	rest, err := check(ctx, on[1:], progress, "^("+strings.Join(leftOut, "|")+")$", opts)
	for _, r := range rest.Results {
		if !slices.ContainsFunc(ran, func(o conformance.Result) bool { return o.Group == r.Group && o.Name == r.Name }) {
			ran = append(ran, r)
		}
	}
	report.Results = ran
	return report, err
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
	var stderr strings.Builder
	j := job{Name: name, Own: s.own, Embed: s.embed, URLs: s.urls, Mark: s.mark, Clean: s.redisURLs(), Quick: o.Quick, Only: o.Only}
	c, err := child.Start(suiteKind, j, func(cmd *exec.Cmd) error {
		cmd.Stderr = &stderr
		return cmd.Start()
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = c.Close()
		_ = c.Wait()
		redistest.RemoveFilesOf(c.Process.Pid)
	}()
	defer context.AfterFunc(ctx, func() {
		_, _ = io.WriteString(c, stopWord)
		_ = c.Close()
	})()
	for in, of := json.NewDecoder(c), 0; ; {
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

// tail returns the end of what a process has said.
func tail(s string) string { return s[max(0, len(s)-1000):] }
