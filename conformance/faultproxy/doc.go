// Package faultproxy is a TCP proxy between a client and a Redis server that
// brings about, on purpose and for chosen commands or connections, what networks do
// by chance: replies lost after the command was applied, commands that arrive twice,
// late or not at all, links that go silent, slow down, break or are reset.
//
// It reads enough of RESP2 and RESP3 to tell commands and replies apart, in
// pipelines too, and otherwise passes bytes on unchanged. So it works with every
// client and every server that speaks the protocol.
//
//	p := faultproxy.Start(t, server.Addr())
//	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
//	rule := p.DropReply(faultproxy.MatchCommand("INCR"), 1)
//	err := rdb.Incr(ctx, "n").Err() // an error, and n is 1
//	<-rule.Done()
//
// # Rules
//
// A rule concerns a number of commands: [Faults.DropReply], [Faults.HangReply],
// [Faults.ResetBefore], [Faults.ResetAfter], [Faults.Duplicate], [Faults.Delay] and
// [Faults.DelayReply]. Of the rules that match a command, the oldest that is not used
// up applies; a command never meets two. A reply of NOSCRIPT uses up no firing, for
// the script has not run: a rule for EVALSHA and EVAL acts on whichever of them runs
// it. (ResetBefore, Delay and Duplicate act before there is a reply.)
//
// # The link
//
// [Faults.Blackhole], [Faults.Throttle], [Faults.Cut] and [Faults.Reset] concern
// connections, whatever is sent on them; [Proxy.Refuse] also those to come.
//
// # Some connections only
//
// A [Proxy] has the faults of all its connections. [Faults.Only] gives those of some:
//
//	p.Only(faultproxy.Subscribed).Blackhole(true) // messages get lost, commands pass
//	p.Only(faultproxy.ByID(3)).Reset()
//
// # Other protocols
//
// [NewPlain] makes a proxy for a server of any protocol. It knows no commands: the link and
// [Proxy.Refuse] work, and [Proxy.Mute], [Proxy.MuteAfter] and [Proxy.HoldAfter] stop what the server sends, also after a
// number of answers, and what clients send after a number of requests.
//
// # Guarantees
//
// A firing of a rule is counted before the client can see an effect of it. The server
// reads all that the proxy has passed on, even if the client has hung up, unless the
// connection was cut. After [Proxy.Close] nothing of the proxy
// runs.
//
// # Limits
//
// Once a connection has subscribed to a channel, replies look like
// messages: of the rules only Delay and ResetBefore still act on it, and on the
// subscribing command itself. MONITOR, CLIENT REPLY and replication are not
// understood. Connections are TCP without TLS.
package faultproxy
