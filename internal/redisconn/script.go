package redisconn

import (
	"crypto/sha1"
	"encoding/hex"
	"regexp"
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
	return &Script{source: source, sha: sha, Keys: namesIn(source, "KEYS"), Args: namesIn(source, "ARGV")}
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
