//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/report"
)

// skew is more than the TTL.
const skew = report.TTL + 2*time.Second

// frozen is how long a server stands still.
const frozen = 2 * report.TTL

// outages are those of one server that keeps its data.
var outages = []report.Case{
	{
		Name: "restart", Title: "A server crashes, and comes back with its data", Stage: report.Plain, Want: report.GoesOn, Keeps: true,
		Done: "One server is killed (`kill -9`), and started again after a second. It writes each change to the disk before it answers (`appendfsync always`).",
		Run: func(r *report.Run) (report.Outcome, error) {
			return r.Held(nil, func(*report.Process) error { return r.Stage.(*report.Servers).Crash(time.Second) })
		},
	},
	{
		Name: "freeze", Title: "A server stands still for twice the TTL", Stage: report.Plain, Want: report.OneAtATime,
		Done: fmt.Sprintf("The process of one server is stopped (`SIGSTOP`) for %.0f s. Its connections stay open.", frozen.Seconds()),
		Run: func(r *report.Run) (report.Outcome, error) {
			return r.Held(nil, func(*report.Process) error { r.Stage.(*report.Servers).Freeze(frozen); return nil })
		},
	},
}

// redisCases returns the faults on Redis, those of every store included.
func redisCases() []report.Case {
	cases := append(slices.Concat(report.Cases(report.Plain), outages),
		report.Case{
			Name: "majority", Title: "Two of three servers lose their data", Stage: report.Plain, For: quorum, Want: report.ToldOrGoesOn,
			Done: "`FLUSHALL` on two of three independent servers at once.",
			Run: func(r *report.Run) (report.Outcome, error) {
				return r.Held(nil, func(*report.Process) error { return r.Stage.(*report.Servers).Empty(context.Background(), 2) })
			},
		},
		report.Case{
			Name: "failover", Title: "The master dies before its replica has the lock", Stage: sentinels, For: one, Want: report.ToldOrGoesOn,
			Done: "Replication stops, the lock is granted, and the master is killed. Sentinel promotes the replica. Both are let in until the holder asks the new master, or its lease ends.",
			Run: func(r *report.Run) (report.Outcome, error) {
				g := r.Stage.(*group)
				return r.Held(func() { g.sentinel.StopReplication(&g.tb) }, func(*report.Process) error { g.sentinel.KillMaster(&g.tb); return nil })
			},
		},
		report.Case{
			Name: "slot", Title: "A cluster moves the lock to another master", Stage: cluster, For: oneWithoutAcks, Want: report.GoesOn, Keeps: true,
			Done: "The slot of the lock's key moves to another master of a cluster of three.",
			Run: func(r *report.Run) (report.Outcome, error) {
				g := r.Stage.(*group)
				return r.Held(nil, func(*report.Process) error { return g.move(r.Key, r.Subject.Name) })
			},
		},
		report.Case{
			Name: "clock", Title: "The clock of a server jumps an hour ahead", Stage: report.Settable, Want: report.ToldOrGoesOn,
			Done: "One server's clock is set an hour ahead: for the server all leases are over.",
			Run: func(r *report.Run) (report.Outcome, error) {
				st := r.Stage.(*report.Servers)
				return r.Held(nil, func(*report.Process) error { st.Servers[0].SetClock(&st.TB, time.Hour); return nil })
			},
		},
		report.Case{
			Name: "skew", Title: "The servers' clocks are ahead all the time", Stage: report.Ahead(skew), Want: report.GoesOn, Keeps: true,
			Done: fmt.Sprintf("From the beginning the clocks of the servers are %.0f s ahead of those of the processes. Nothing else happens.", skew.Seconds()),
			Run: func(r *report.Run) (report.Outcome, error) {
				return r.Held(nil, func(*report.Process) error { return nil })
			},
		},
		command("twice", "The first command arrives twice", "The first command for the lock reaches each server twice. The client gets the second answer.",
			func(p *faultproxy.Proxy, key string) { p.Duplicate(faultproxy.MatchContains(key), 1) }),
		command("reply", "The first reply is lost", "The first command for the lock is carried out. The connection breaks before the answer.",
			func(p *faultproxy.Proxy, key string) { p.DropReply(faultproxy.MatchContains(key), 1) }),
		gaveUp(),
	)
	for i, c := range cases {
		if c.For == nil {
			cases[i].For = func(s report.Subject) bool { return !s.Acks }
		}
		cases[i].Why = whys[c.Name]
	}
	return cases
}

func quorum(s report.Subject) bool         { return s.Nodes > 1 }
func one(s report.Subject) bool            { return s.Nodes == 1 && !s.Watches }
func oneWithoutAcks(s report.Subject) bool { return one(s) && !s.Acks }

// command returns a fault of the first command for a lock.
func command(name, title, done string, fault func(p *faultproxy.Proxy, key string)) report.Case {
	return report.Case{
		Name: name, Title: title, Done: done + " Once the holder has the lock it gives it back.", Shows: report.Freed, Stage: report.Plain,
		Run: func(r *report.Run) (o report.Outcome, err error) {
			holder, next, err := r.Two()
			if err != nil {
				return o, err
			}
			for _, link := range r.Stage.(*report.Servers).Links[0] {
				fault(link, r.Key)
			}
			r.Fault()
			granted, err := holder.Lock(r.Key, report.Patience)
			if err != nil {
				o.NoGrant, o.Took = err.Error(), r.Since(time.Now())
			} else {
				o.Took = r.Since(granted.Granted)
				err = holder.Unlock(r.Key)
			}
			r.Fault()
			theirs, lerr := next.Lock(r.Key, report.Patience)
			o.Next = r.Since(theirs.Granted)
			if o.NoGrant != "" {
				err = nil // the table shows it
			}
			return o, errors.Join(err, lerr)
		},
	}
}

// gaveUp returns a command that arrives when its caller has given up.
func gaveUp() report.Case {
	const held, given = report.TTL / 2, report.TTL / 6
	return report.Case{
		Name: "late", Title: "The first command arrives when its caller has given up", Shows: report.Freed, Stage: report.Plain,
		Done: fmt.Sprintf("The first command for the lock is on its way to each server for %v s. The caller's context ends after %v s. "+
			"The next owner asks for the lock when the command has arrived; the table counts from there.", held.Seconds(), given.Seconds()),
		Run: func(r *report.Run) (o report.Outcome, err error) {
			holder, next, err := r.Two()
			if err != nil {
				return o, err
			}
			for _, link := range r.Stage.(*report.Servers).Links[0] {
				link.Delay(faultproxy.MatchContains(r.Key), 1, held)
			}
			r.Fault()
			began := time.Now()
			if _, err := holder.Lock(r.Key, given); err != nil {
				o.NoGrant = err.Error()
			}
			o.Took = r.Since(time.Now())
			time.Sleep(time.Until(began.Add(held + held/10)))
			r.Fault()
			if o.NoGrant == "" {
				return o, errors.New("want a caller that gives up, got the lock")
			}
			theirs, err := next.Lock(r.Key, report.Patience)
			o.Next = r.Since(theirs.Granted)
			return o, err
		},
	}
}

// whys are the reasons of what broke, by case and subject. They are on the page where it did.
var whys = map[string]map[string]string{
	"pause": {
		"redsync": noTokens, "redsync on 3 servers": noTokens, "redislock": noTokens,
		"rueidislock": noTokens + " The first question after the pause may still be answered \"held\": the context ends when its " +
			"goroutine has had an answer from Redis.",
	},
	"partition": {
		"rueidislock": "the context ends when an extension fails. [The extension](https://github.com/redis/rueidis/blob/v1.0.79/rueidislock/lock.go#L279) " +
			"may take until its own new deadline, which is after the key's. `ExtendInterval` is the most that this adds.",
	},
	"cut": {
		"rueidislock": "the cause is not proven. From its source: an extension that fails [deletes the key](https://github.com/redis/rueidis/blob/v1.0.79/rueidislock/lock.go#L293), " +
			"and ends the context after that, so a section that runs on can meet the next owner's.",
	},
	"forget": {
		"redsync":       "`Until` is the end that the holder was granted. Nothing looks at the key before.",
		"setnx":         atRenewal,
		"blpop":         atRenewal,
		"hashreentrant": atRenewal,
	},
	"freeze": {
		"rueidislock": "the cause is not proven. From its source: an attempt fails while the server stands still, and then [the waiter waits for a notice](https://github.com/redis/rueidis/blob/v1.0.79/rueidislock/lock.go#L407) " +
			"of a change of the key, without asking again.",
	},
	"majority": {"redlock": atRenewal, "redsync on 3 servers": "`Until` is the end that the holder was granted. Nothing looks at the key before."},
	"failover": {
		"setnx": asynchronous, "hashreentrant": asynchronous, "blpop": asynchronous, "rueidislock": asynchronous,
		"redsync": asynchronous, "redislock": asynchronous,
	},
	"clock": {
		"setnx": atRenewal, "hashreentrant": atRenewal, "blpop": atRenewal,
		"redsync": "`Until` is on the holder's clock.",
	},
	"skew": {
		"rueidislock": "the end of the key is a time of [the client's clock](https://github.com/redis/rueidis/blob/v1.0.79/rueidislock/lock.go#L265) " +
			"(`PXAT`), and has passed for the server: the lock keeps nobody out. The context ends when the next owner has set the key, or at the next extension. " +
			"With `FallbackSETPX` the first TTL counts on the server's clock, and extensions do not.",
	},
	"twice": {"rueidislock": ownKey},
	"reply": {"rueidislock": ownKey},
	"late": {
		"redsync": notCleaned, "redsync on 3 servers": notCleaned, "redislock": notCleaned,
	},
}

const (
	noTokens     = "it has no tokens that a resource could check."
	atRenewal    = "the loss is known at the next renewal, TTL/3 after the last. A token stops the earlier holder's writes as soon as the next owner has written."
	asynchronous = "replication is asynchronous: the new master has never heard of the lock."
	ownKey       = "the second try takes the key of the first try for another holder's, and waits until that key expires."
	notCleaned   = "the command sets the key for nobody, for a TTL. The command that would delete it is either sent under the caller's context, which has ended, or not sent at all."
)
