package redisdriver

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"io/fs"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua
var shared embed.FS

// Script is a Lua script of a strategy. Its head names what it is sent, see [Protocol]
// for the names; and a line with the name of another file stands for that file:
//
//	local lock, fence = unpack(KEYS)
//	local claim, ttl = unpack(ARGV)
//	-- fence.lua
//
// The server is sent the code alone: half of the text is comments.
type Script struct {
	source     any // strings, as commands have them
	sha        any
	keys, argv []string
}

// registry has all scripts by their hash, for [ScriptName] and [Sources].
var registry sync.Map

type named struct{ name, source string }

// ScriptName tells tests which script an EVALSHA or EVAL runs, given its first
// argument; "" for none of ours.
func ScriptName(shaOrSource string) string {
	script, ok := registry.Load(shaOrSource)
	if !ok {
		sum := sha1.Sum([]byte(shaOrSource))
		script, _ = registry.Load(hex.EncodeToString(sum[:]))
	}
	s, _ := script.(named)
	return s.name
}

// Sources gives tests what the server is sent of each script, by its hash.
func Sources() map[string]string {
	all := make(map[string]string)
	registry.Range(func(sha, script any) bool {
		all[sha.(string)] = script.(named).source
		return true
	})
	return all
}

// NewScript makes a Script of the Lua file that has its name, in the directory lua of
// one of libraries. It may use their other files, and those of this package. The name says what it
// does: "acquire", "renew", "release", "set holds", "inspect" or "break".
func NewScript(name string, libraries ...fs.ReadFileFS) *Script {
	return newScript(name, "-- "+strings.ReplaceAll(name, " ", "")+".lua", libraries...)
}

func newScript(name, source string, libraries ...fs.ReadFileFS) *Script {
	for include.MatchString(source) {
		source = include.ReplaceAllStringFunc(source, func(line string) string {
			for _, files := range append(libraries, shared) {
				if file, err := files.ReadFile("lua/" + strings.TrimPrefix(line, "-- ")); err == nil {
					return string(file)
				}
			}
			panic("no such file: " + line)
		})
	}
	source = codeOf(source)
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	registry.Store(sha, named{name, source})
	return &Script{source: source, sha: sha, keys: namesIn(source, "KEYS"), argv: namesIn(source, "ARGV")}
}

var include = regexp.MustCompile(`(?m)^-- \w+\.lua$`)

// codeOf is source without indentation, blank lines and lines that are comments. A comment
// behind code stays, as strings may have dashes, too. No script has a string or comment of
// several lines.
func codeOf(source string) string {
	var code strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			code.WriteString(line + "\n")
		}
	}
	return code.String()
}

// namesIn are the names that the script gives to the elements of an array.
func namesIn(source, array string) []string {
	head := regexp.MustCompile(`(?m)^local (.*) = unpack\(` + array + `\)`).FindStringSubmatch(source)
	if head == nil {
		return nil
	}
	return strings.Split(head[1], ", ")
}

// noRetry is a command that go-redis must not send twice by itself.
type noRetry struct{ *redis.Cmd }

func (noRetry) NoRetry() bool { return true }

type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// input is a script with its keys and arguments as the words of a command; pointers are
// to fields of its flight, which saves an allocation for each. The first two words are
// set when it is sent: how the script is named, and its hash or source.
type input []any

const inputHead = 3 // EVALSHA or EVAL, the script, how many keys

// cmd makes the command at a place whose last command is over.
func (s *Script) cmd(ctx context.Context, at *redis.Cmd, in input) noRetry {
	*at = *redis.NewCmd(ctx, in...)
	routed(at, inputHead)
	return noRetry{at}
}

// routed tells a cluster client where the first key is. With a step count it does
// not ask the server for its table of commands either, which is long and which a
// user may not be allowed to see.
func routed(cmd *redis.Cmd, firstKey int8) {
	cmd.SetFirstKeyPos(firstKey)
	cmd.SetStepCount(1)
}

// bySHA is the command; in is its own from now on.
func (s *Script) bySHA(ctx context.Context, at *redis.Cmd, in input) noRetry {
	in[0], in[1] = "evalsha", s.sha
	return s.cmd(ctx, at, in)
}

func (s *Script) bySource(ctx context.Context, at *redis.Cmd, in input) noRetry {
	in[0], in[1] = "eval", s.source
	return s.cmd(ctx, at, in)
}

// run sends the script once. That the server does not know it (first use,
// restart, SCRIPT FLUSH) means that it did not run, so it is sent in full then.
func (s *Script) run(ctx context.Context, on processor, in input) (any, error) {
	cmd := s.bySHA(ctx, new(redis.Cmd), in)
	err := on.Process(ctx, cmd)
	if isNoScript(err) {
		cmd = s.bySource(ctx, new(redis.Cmd), in) // the server is through with the other
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
		switch w := w.(type) {
		case string:
			n += len(w)
		case *string:
			n += len(*w)
		}
		n += 8
	}
	return n
}

// plain is in by itself, as clients of a type of the user's may want to see it.
func (in input) plain() input {
	p := make(input, len(in), len(in)+4)
	for i, w := range in {
		switch w := w.(type) {
		case *string:
			p[i] = *w
		case *int64:
			p[i] = *w
		default:
			p[i] = w
		}
	}
	return p
}
