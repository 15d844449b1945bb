package redisconn

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// DelIfEq is Valkey 9's DELIFEQ key value. It replies 1 if it has deleted the key, 0 if the key
// is not there or has another value. Replicas and the append-only file get a DEL.
const DelIfEq = "DELIFEQ"

// natives is what is known about the native commands of a server. The HELLO that begins or
// probes the fast path's connection tells, so it costs no command, and a server that a failover
// brings is asked anew. Where there is no fast path (a cluster, the user's own connections) or
// HELLO is refused, scripts go as scripts.
//
// HELLO may be wrong about a connection: a proxy or another server may be behind it, the command
// may be renamed or not allowed to the user. So each error that the server answers to a native
// command, which it has not carried out then, is followed by the script, as after a NOSCRIPT. A
// command that the server does not know, or the user may not send, is not sent again.
type natives struct {
	known   atomic.Bool // the server has them
	refused atomic.Bool // in spite of its version
}

// note notes the answer to a HELLO.
func (n *natives) note(hello any) {
	words, _ := hello.([]any)
	var server, version string
	for i := 0; i+1 < len(words); i += 2 {
		switch value, _ := words[i+1].(string); words[i] {
		case "server":
			server = value
		case "version":
			version = value
		}
	}
	major, _, _ := strings.Cut(version, ".")
	number, _ := strconv.Atoi(major)
	n.known.Store(server == "valkey" && number >= 9 && !n.refused.Load())
}

// notRun reports whether the script of c, which is answered, is to be sent in full.
func (n *natives) notRun(c *Command) bool {
	err := c.cmd.Err()
	if !c.natively || !isServerError(err) || isRedirect(err) {
		return isNoScript(err)
	}
	if msg := err.Error(); errorCode(msg) == "NOPERM" && strings.Contains(msg, "command") || strings.HasPrefix(msg, "ERR unknown command") {
		n.refused.Store(true)
		n.known.Store(false)
	}
	return true
}

// natives returns what is known about the pipeline's server.
func (p *pipeline) natives() *natives {
	if p.fast == nil {
		return &unknownNatives
	}
	return &p.fast.natives
}

// NativeOff is for the measurement.
var NativeOff atomic.Bool

var unknownNatives natives

// begin makes the command that runs c's script: with native the native one, if it has one.
func (c *Command) begin(ctx context.Context, native bool) {
	if c.natively = native && c.Script.Native != "" && !NativeOff.Load(); !c.natively {
		c.cmd = c.Script.bySHA(ctx, &c.store, c.Words)
		return
	}
	c.native = [...]any{c.Script.Native, c.Words[headWords], c.Words[headWords+1]}
	c.store = *redis.NewCmd(ctx, c.native[:]...)
	c.store.SetFirstKeyPos(1)
	c.cmd = noRetry{&c.store}
}
