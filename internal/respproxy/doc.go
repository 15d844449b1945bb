// Package respproxy is a TCP proxy between a client and a Redis server that
// brings about, on purpose and for chosen commands, what networks do by chance:
// replies lost after the command was applied, commands that arrive twice or
// late, links that go silent or break.
//
// It reads enough of RESP2 and RESP3 to tell commands and replies apart, in
// pipelines too, and otherwise passes bytes on unchanged.
//
//	p := respproxy.Start(t, server.Addr())
//	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
//	rule := p.DropReply(respproxy.MatchCommand("INCR"), 1)
//	err := rdb.Incr(ctx, "n").Err() // an error, and n is 1
//	<-rule.Done()
//
// # Rules
//
// Of the rules that match a command, the oldest that is not used up applies; a
// command never meets two. A reply of NOSCRIPT uses up no firing, for the script
// has not run: a rule for EVALSHA and EVAL acts on whichever of them runs it.
//
// # Limits
//
// Once a connection has subscribed to a channel, replies can no longer be told
// from messages: of the rules only Delay still acts on it, and on the
// subscribing command itself. MONITOR, CLIENT REPLY and replication are not
// understood.
package respproxy
