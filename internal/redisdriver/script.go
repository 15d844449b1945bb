package redisdriver

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/prelude.lua
var prelude string

// Script is a Lua script of a strategy, with the shared functions that it uses before
// it.
type Script struct {
	source any // strings, as commands have them
	sha    any
	fenced bool // it uses the fencing counter
}

// registry has the names of all scripts by their hash, for [ScriptName].
var registry sync.Map

// ScriptName tells tests which script an EVALSHA or EVAL runs, given its first
// argument; "" for none of ours.
func ScriptName(shaOrSource string) string {
	name, ok := registry.Load(shaOrSource)
	if !ok {
		sum := sha1.Sum([]byte(shaOrSource))
		name, _ = registry.Load(hex.EncodeToString(sum[:]))
	}
	s, _ := name.(string)
	return s
}

// NewScript makes a Script of a strategy's Lua source. name says what it does:
// "acquire", "renew", "release" or "set holds".
//
// Of what is in libraries, and in the prelude, it gets what it uses: the server makes
// each function anew at every run.
func NewScript(name, source string, libraries ...string) *Script {
	fenced := strings.Contains(source, "KEYS[2]")
	parts := partsOf(prelude)
	for _, library := range libraries {
		parts = append(parts, partsOf(library)...)
	}
	for _, p := range slices.Backward(parts) { // each may use those before it
		if p.used.MatchString(source) {
			source = p.source + "\n" + source
		}
	}
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	registry.Store(sha, name)
	return &Script{source, sha, fenced}
}

// part is a function or a constant of a library.
type part struct {
	source string
	used   *regexp.Regexp
}

var partHead = regexp.MustCompile(`(?m)^local (function )?(\w+)`)

// partsOf takes a library apart: it has nothing but comments, constants of a line
// each, and functions that end with the first "end" at the beginning of a line.
func partsOf(library string) (all []part) {
	for _, at := range partHead.FindAllStringSubmatchIndex(library, -1) {
		source, name, end, use := library[at[0]:], library[at[4]:at[5]], "\n", `\b`
		if at[2] >= 0 {
			end, use = "\nend\n", `\(`
		}
		source = source[:strings.Index(source, end)+len(end)]
		all = append(all, part{source, regexp.MustCompile(`\b` + name + use)})
	}
	return all
}

// noRetry is a command that go-redis must not send twice by itself.
type noRetry struct{ *redis.Cmd }

func (noRetry) NoRetry() bool { return true }

type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// input is a script with its keys and arguments as the words of a command. The first
// two are for who sends it: how the script is named, and its hash or source.
type input []any

const inputHead = 3 // EVALSHA or EVAL, the script, how many keys

func (s *Script) cmd(ctx context.Context, in input) noRetry {
	cmd := redis.NewCmd(ctx, in...)
	routed(cmd, inputHead)
	return noRetry{cmd}
}

// routed tells a cluster client where the first key is. With a step count it does
// not ask the server for its table of commands either, which is long and which a
// user may not be allowed to see.
func routed(cmd *redis.Cmd, firstKey int8) {
	cmd.SetFirstKeyPos(firstKey)
	cmd.SetStepCount(1)
}

// bySHA is the command; in is its own from now on.
func (s *Script) bySHA(ctx context.Context, in input) noRetry {
	in[0], in[1] = "evalsha", s.sha
	return s.cmd(ctx, in)
}

func (s *Script) bySource(ctx context.Context, in input) noRetry {
	in[0], in[1] = "eval", s.source
	return s.cmd(ctx, in)
}

// run sends the script once. That the server does not know it (first use,
// restart, SCRIPT FLUSH) means that it did not run, so it is sent in full then.
func (s *Script) run(ctx context.Context, on processor, in input) (any, error) {
	cmd := s.bySHA(ctx, in)
	err := on.Process(ctx, cmd)
	if isNoScript(err) {
		cmd = s.bySource(ctx, in) // the server is through with the other
		err = on.Process(ctx, cmd)
	}
	if err != nil {
		relearn(on, err)
		return nil, classify(err)
	}
	return cmd.Val(), nil
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// size is about how many bytes the command has.
func (in input) size() int {
	n := 64
	for _, w := range in {
		s, _ := w.(string)
		n += 8 + len(s)
	}
	return n
}
