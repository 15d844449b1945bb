package redisdriver

import (
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/distlock/locker/internal/redisconn"
)

//go:embed lua
var shared embed.FS

// NewScript makes a script of the Lua file that has its name, in the directory lua of one of
// libraries. It may use their other files, and those of this package; see [Protocol] for the
// names of its keys and arguments. The name says what it does: "acquire", "renew",
// "release", "set holds", "inspect" or "break".
func NewScript(name string, libraries ...redisconn.Files) *redisconn.Script {
	return redisconn.NewScript(name, "-- "+strings.ReplaceAll(name, " ", "")+".lua", append(libraries, shared, topology(false))...)
}

// InCluster is a library by which a script knows that its server is one of a cluster.
var InCluster redisconn.Files = topology(true)

// topology has the Lua file that says whether there is a cluster.
type topology bool

// ReadFile implements [redisconn.Files].
func (cluster topology) ReadFile(name string) ([]byte, error) {
	if name != "lua/cluster.lua" {
		return nil, errors.ErrUnsupported
	}
	return fmt.Appendf(nil, "local CLUSTER = %t\n", bool(cluster)), nil
}
