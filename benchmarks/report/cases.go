//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/report"
)

// skew is more than the TTL.
const skew = report.TTL + 2*time.Second

// redisCases are the faults on Redis, those of every store included.
func redisCases() []report.Case {
	cases := append(report.Cases(plain),
		report.Case{
			Name: "majority", Title: "Two of three servers lose their data", Stage: plain, For: quorum, Want: report.ToldOrGoesOn,
			Done: "`FLUSHALL` on two of three independent servers at once.",
			Run: func(r *report.Run) (report.Outcome, error) {
				return r.Held(nil, func(*report.Process) error { return r.Stage.(*servers).empty(context.Background(), 2) })
			},
		},
		report.Case{
			Name: "failover", Title: "The master dies before its replica has the lock", Stage: sentinels, For: one, Want: report.ToldOrGoesOn,
			Done: "Replication stops, the lock is granted, and the master is killed. Sentinel promotes the replica.",
			Run: func(r *report.Run) (report.Outcome, error) {
				g := r.Stage.(*group)
				return r.Held(func() { g.sentinel.StopReplication(&g.tb) }, func(*report.Process) error { g.sentinel.KillMaster(&g.tb); return nil })
			},
		},
		report.Case{
			Name: "slot", Title: "A cluster moves the lock to another master", Stage: cluster, For: oneWithoutAcks, Want: report.GoesOn,
			Done: "The slot of the lock's key moves to another master of a cluster of three.",
			Run: func(r *report.Run) (report.Outcome, error) {
				g := r.Stage.(*group)
				return r.Held(nil, func(*report.Process) error { return g.move(r.Key, r.Subject.Name) })
			},
		},
		report.Case{
			Name: "clock", Title: "The clock of a server jumps an hour ahead", Stage: settable, Want: report.ToldOrGoesOn,
			Done: "One server's clock is set an hour ahead: for the server all leases are over.",
			Run: func(r *report.Run) (report.Outcome, error) {
				st := r.Stage.(*servers)
				return r.Held(nil, func(*report.Process) error { st.servers[0].SetClock(&st.tb, time.Hour); return nil })
			},
		},
		report.Case{
			Name: "skew", Title: "The servers' clocks are ahead all the time", Stage: ahead(skew), Want: report.GoesOn,
			Done: fmt.Sprintf("From the beginning the clocks of the servers are %v ahead of those of the processes. Nothing else happens.", skew),
			Run: func(r *report.Run) (report.Outcome, error) {
				return r.Held(nil, func(*report.Process) error { return nil })
			},
		},
		command("twice", "The first command arrives twice", "The first command for the lock reaches the server twice. The client gets the second answer.",
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
func one(s report.Subject) bool            { return s.Nodes == 1 }
func oneWithoutAcks(s report.Subject) bool { return s.Nodes == 1 && !s.Acks }

// move moves the slot of a lock.
func (g *group) move(key, subject string) error {
	if subject == "rueidislock" {
		key = "rueidislock:0:" + key
	}
	shard := g.cluster.ShardOf(&g.tb, key)
	g.cluster.MoveSlot(&g.tb, g.cluster.Slot(&g.tb, key), (shard+1)%g.cluster.Shards())
	return nil
}

// command is a fault of the first command for a lock.
func command(name, title, done string, fault func(p *faultproxy.Proxy, key string)) report.Case {
	return report.Case{
		Name: name, Title: title, Done: done + " Once the holder has the lock it gives it back.", Shows: report.Freed, Stage: plain,
		Run: func(r *report.Run) (o report.Outcome, err error) {
			holder, next, err := r.Two()
			if err != nil {
				return o, err
			}
			fault(r.Stage.(*servers).links[0][0], r.Key)
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

// gaveUp is a command that arrives when its caller has given up.
func gaveUp() report.Case {
	const held, given = report.TTL / 2, report.TTL / 6
	return report.Case{
		Name: "late", Title: "The first command arrives when its caller has given up", Shows: report.Freed, Stage: plain,
		Done: fmt.Sprintf("The first command for the lock is on its way for %v. The caller's context ends after %v. "+
			"The next one asks for the lock when the command has arrived; the table counts from there.", held, given),
		Run: func(r *report.Run) (o report.Outcome, err error) {
			holder, next, err := r.Two()
			if err != nil {
				return o, err
			}
			r.Stage.(*servers).links[0][0].Delay(faultproxy.MatchContains(r.Key), 1, held)
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

var whys = map[string]map[string]string{}
