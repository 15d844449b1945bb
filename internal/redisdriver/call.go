package redisdriver

import "github.com/distlock/locker/driver"

// flight is the command for a script, with room for a few more arguments.
func (d *Driver) flight(s *Script, req driver.Request) *flight {
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
	for _, name := range s.argv {
		switch name {
		case "claim":
			in = append(in, &f.req.ID)
		case "owner":
			in = append(in, f.named())
		case "ttl":
			f.ttl = req.TTL.Milliseconds()
			in = append(in, &f.ttl)
		case "retention":
			f.retention = retentionOf(req)
			in = append(in, &f.retention)
		case "tokens":
			in = append(in, max(req.Tokens, 1))
		case "channel":
			if d.signals != nil {
				f.channel, f.publish = d.signals.Channel(req.Key)
				in = append(in, &f.channel, &f.publish)
			}
		}
	}
	f.in = in
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

func retentionOf(req driver.Request) int64 {
	if !req.Fencing {
		return 0
	}
	return max(2*req.TTL, minRetention).Milliseconds()
}
