// Package redisconn sends commands to a Redis deployment: one server, one behind Sentinels,
// or a cluster. [Open] makes a [Conn], [Conn.Do] sends a [Command], which runs a [Script],
// and an [Error] says what a failure means. The package knows nothing of locks.
//
// # Clients
//
// The user configures a client for the user's needs: it may send a command twice, read
// without looking at the context, or have a pool that others exhaust. So a Conn derives a
// small private client from its options (no retries, short timeouts), and makes its
// connections with the user's dial hooks; see dialerOf. Where the options cannot be read
// (a redis.Ring, a wrapper), the user's client sends the commands.
//
// # Round trips
//
// The commands of many callers share round trips; see pipeline. A command that comes alone
// is sent by its caller; see fastPath.
//
// A caller returns when its context ends. go-redis does not look at the context while a
// command is on the wire, so the command is abandoned: it may still reach the server.
// [Conn.AwaitAbandoned] waits until it is known whether it has, so that a later command
// can be ordered after it.
//
// # Beside Do
//
// [Blocking] and [Replicas] have clients of their own, made of the same private options.
// [Conn.Scan], [Conn.Info], [Conn.Setting] and [Conn.Publish] end with their context, which
// go-redis alone does not.
package redisconn
