package redisdriver

import "github.com/distlock/locker/driver"

// flight is the command for a script; args come behind those that the script names.
func (d *Driver) flight(s *Script, req driver.Request, args ...any) *flight {
	f := newFlight(nil)
	f.script, f.req = s, req
	in := append(f.in, nil, nil, nil) // inputHead
	for i, name := range s.keys {
		switch {
		case name == "lock":
			in = append(in, &f.req.Key)
		case name != "fence":
			in = append(in, AuxKey("locker:"+name+":", req.Key))
		case req.Fencing || i < len(s.keys)-1:
			// (While a slot moves, its nodes refuse a command with a key that is there
			// and one that is not: none is named in vain.)
			f.fence = FenceKey(req.Key)
			in = append(in, &f.fence)
		}
	}
	in[inputHead-1] = len(in) - inputHead
	needed := len(in) // arguments behind it are as usual, and left out
	for _, name := range s.argv {
		switch name {
		case "claim":
			in = append(in, &f.req.ID)
			needed = len(in)
		case "ttl":
			f.ttl = req.TTL.Milliseconds()
			in = append(in, &f.ttl)
			needed = len(in)
		case "retention":
			f.retention = retentionOf(req)
			in = append(in, &f.retention)
			needed = len(in)
		case "fence":
			f.fence = FenceKey(req.Key)
			in = append(in, &f.fence)
			needed = len(in)
		case "queue":
			in = append(in, AuxKey("locker:queue:", req.Key))
			needed = len(in)
		case "tokens":
			if in = append(in, max(req.Tokens, 1)); req.Tokens > 1 {
				needed = len(in)
			}
		case "owner":
			if in = append(in, f.named()); req.Owner != req.ID {
				needed = len(in)
			}
		case "channel":
			if d.signals != nil && (len(args) > 0 || !d.signals.asUsual(req.Key)) {
				f.channel, f.publish = d.signals.Channel(req.Key)
				in = append(in, &f.channel, &f.publish)
				needed = len(in)
			}
		}
	}
	if len(args) == 0 {
		in = in[:needed]
	}
	f.in = append(in, args...)
	return f
}

var unnamed = ""

// named is the name that the caller gave the owner; "" if it gave none.
func (f *flight) named() *string {
	if f.req.Owner == f.req.ID {
		return &unnamed
	}
	return &f.req.Owner
}

// retentionOf is the TTL and what is to be left of the counter when the lock is free.
func retentionOf(req driver.Request) int64 {
	if !req.Fencing {
		return 0
	}
	return (req.TTL + max(2*req.TTL, minRetention)).Milliseconds()
}
