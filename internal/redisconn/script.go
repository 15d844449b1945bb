package redisconn

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"
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
	Keys []string // the names that the script gives to its keys
	Args []string // the names that the script gives to its arguments

	source any // strings, as commands have them
	sha    any
}

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
	source = codeOf(source, libraries)
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	registry.Store(sha, namedScript{name, source})
	return &Script{source: source, sha: sha, Keys: namesIn(source, "KEYS"), Args: namesIn(source, "ARGV")}
}

// codeOf returns source with the files that it names, without indentation, blank lines and lines
// that are comments. A comment behind code stays, as strings may have dashes, too. No script has a
// string or comment of several lines. Every program makes all scripts when it starts, so this is
// one pass over the text.
func codeOf(source string, libraries []Files) string {
	var code strings.Builder
	appendCode(&code, source, libraries)
	return code.String()
}

func appendCode(code *strings.Builder, source string, libraries []Files) {
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if file, ok := fileIn(line); ok {
			appendCode(code, read(file, libraries), libraries)
		} else if line != "" && !strings.HasPrefix(line, "--") {
			code.WriteString(line)
			code.WriteByte('\n')
		}
	}
}

// fileIn returns the file that a line stands for: "-- fence.lua".
func fileIn(line string) (file string, ok bool) {
	file, ok = strings.CutPrefix(line, "-- ")
	return file, ok && strings.HasSuffix(file, ".lua") && !strings.Contains(file, " ")
}

// read returns the text of a file.
func read(file string, libraries []Files) string {
	for _, files := range libraries {
		if text, err := files.ReadFile("lua/" + file); err == nil {
			return string(text)
		}
	}
	panic("no such file: " + file)
}

// namesIn returns the names that the script gives to the elements of an array.
func namesIn(source, array string) []string {
	for line := range strings.Lines(source) {
		names, _, ok := strings.Cut(line, " = unpack("+array+")")
		if names, local := strings.CutPrefix(names, "local "); ok && local {
			return strings.Split(names, ", ")
		}
	}
	return nil
}
