package redisconn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script. Its head names the keys and arguments that it is sent, and a line
// with the name of another file stands for that file:
//
//	local lock, fence = unpack(KEYS)
//	local claim, ttl = unpack(ARGV)
//	-- fence.lua
//
// The server is sent the code alone: half of the text is comments.
type Script struct {
	source     any // strings, as commands have them
	sha        any
	keys, args []string
}

// Keys returns the names that the script gives to its keys.
func (s *Script) Keys() []string { return s.keys }

// Args returns the names that the script gives to its arguments.
func (s *Script) Args() []string { return s.args }

// registry has all scripts by their hash, for [ScriptName] and [Sources].
var registry sync.Map

type namedScript struct{ name, source string }

// ScriptName returns the name of the script that an EVALSHA or EVAL runs, given its first
// argument; "" for none of ours. It is for tests.
func ScriptName(shaOrSource string) string {
	script, ok := registry.Load(shaOrSource)
	if !ok {
		sum := sha1.Sum([]byte(shaOrSource))
		script, _ = registry.Load(hex.EncodeToString(sum[:]))
	}
	s, _ := script.(namedScript)
	return s.name
}

// Sources returns what the server is sent of each script, by its hash. It is for tests.
func Sources() map[string]string {
	all := make(map[string]string)
	registry.Range(func(sha, script any) bool {
		all[sha.(string)] = script.(namedScript).source
		return true
	})
	return all
}

// Files are Lua files by name; [embed.FS] are.
type Files interface {
	ReadFile(name string) ([]byte, error)
}

// NewScript makes a Script of source, which may name files in the directory lua of
// libraries. The first library that has a file gives it. name says what the script does.
func NewScript(name, source string, libraries ...Files) *Script {
	for include.MatchString(source) {
		source = include.ReplaceAllStringFunc(source, func(line string) string {
			for _, files := range libraries {
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
	registry.Store(sha, namedScript{name, source})
	return &Script{source: source, sha: sha, keys: namesIn(source, "KEYS"), args: namesIn(source, "ARGV")}
}

var include = regexp.MustCompile(`(?m)^-- \w+\.lua$`)

// codeOf returns source without indentation, blank lines and lines that are comments. A
// comment behind code stays, as strings may have dashes, too. No script has a string or
// comment of several lines.
func codeOf(source string) string {
	var code strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			code.WriteString(line + "\n")
		}
	}
	return code.String()
}

// namesIn returns the names that the script gives to the elements of an array.
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

// headWords is how many words of a command come before the keys: EVALSHA or EVAL, the hash
// or source, and how many keys. The first two are set when the command is sent.
const headWords = 3

// bySHA makes the command that runs the script by its hash, in the place of one that is
// over. The command owns words from now on.
func (s *Script) bySHA(ctx context.Context, at *redis.Cmd, words []any) noRetry {
	words[0], words[1] = "evalsha", s.sha
	return newCmd(ctx, at, words)
}

// bySource makes the command that sends the script along; see bySHA.
func (s *Script) bySource(ctx context.Context, at *redis.Cmd, words []any) noRetry {
	words[0], words[1] = "eval", s.source
	return newCmd(ctx, at, words)
}

func newCmd(ctx context.Context, at *redis.Cmd, words []any) noRetry {
	*at = *redis.NewCmd(ctx, words...)
	setFirstKey(at, headWords)
	return noRetry{at}
}

// setFirstKey tells a cluster client where the first key is. With a step count it does not
// ask the server for its table of commands either, which is long and which a user may not be
// allowed to see.
func setFirstKey(cmd *redis.Cmd, at int8) {
	cmd.SetFirstKeyPos(at)
	cmd.SetStepCount(1)
}

// run sends the script once. A server that does not know it (first use, restart, SCRIPT
// FLUSH) has not run it, and is sent it in full.
func (s *Script) run(ctx context.Context, on processor, words []any) (any, error) {
	cmd := s.bySHA(ctx, new(redis.Cmd), words)
	err := on.Process(ctx, cmd)
	if isNoScript(err) {
		cmd = s.bySource(ctx, new(redis.Cmd), words) // the server is through with the first
		err = on.Process(ctx, cmd)
	}
	if err != nil {
		reloadTopology(on, err)
		return nil, classify(err)
	}
	return cmd.Val(), nil
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// size returns about how many bytes a command of these words has.
func size(words []any) int {
	n := 64
	for _, w := range words {
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

// plain returns the words with values in the place of pointers, for a client of a type of
// the user's, which may look at them.
func plain(words []any) []any {
	p := make([]any, len(words), len(words)+4)
	for i, w := range words {
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
