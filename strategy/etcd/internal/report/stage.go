//go:build unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/report"
	"github.com/distlock/locker/strategy/etcd/internal/members"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stage is three members, each with a proxy for each of two processes.
type stage struct {
	members []*members.Server
	client  *clientv3.Client
	report.Links
}

func three(report.Subject) (report.Stage, error) {
	all, err := members.Launch(3)
	if err != nil {
		return nil, err
	}
	st := &stage{members: all}
	if st.client, err = members.Dial(all...); err == nil {
		err = st.link()
	}
	if err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

func (st *stage) link() error {
	for _, m := range st.members {
		if err := st.Link(func() (*faultproxy.Proxy, error) { return faultproxy.NewPlain(m.Socket()) }); err != nil {
			return err
		}
	}
	return nil
}

// Forget deletes all keys.
func (st *stage) Forget(ctx context.Context) error {
	_, err := st.client.Delete(ctx, "", clientv3.WithFromKey())
	return err
}

func (st *stage) Close() {
	st.Unlink()
	if st.client != nil {
		_ = st.client.Close()
	}
	members.StopAll(st.members)
}

// killLeader ends the leader by kill -9.
func (st *stage) killLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, m := range st.members {
		status, err := st.client.Status(ctx, m.Endpoint())
		if err == nil && status.Leader == status.Header.MemberId {
			m.Kill()
			return nil
		}
	}
	return errors.New("no member leads")
}

func etcdCases() []report.Case {
	cases := append(report.Cases(three), report.Case{
		Name: "leader", Title: "The leader of etcd dies", Stage: three, Want: report.OneAtATime,
		Done: "The member that leads is killed (`kill -9`). The other two elect a new leader.",
		Run: func(r *report.Run) (report.Outcome, error) {
			return r.Held(nil, func(*report.Process) error { return r.Stage.(*stage).killLeader(context.Background()) })
		},
	})
	for i, c := range cases {
		cases[i].Why = whys[c.Name]
	}
	return cases
}

// whys are the reasons of what broke, by case and subject. They are on the page where it did.
var whys = map[string]map[string]string{
	"crash": {"etcd": "the lease in etcd lasts for a second more than the TTL, and twice a second etcd looks for leases that have ended. The key is free 3 s " +
		"after the `Deadline` at the latest."},
	"pause": {"concurrency": "`Session.Done` closes when a goroutine has noticed, which looks once a second. The revision of the grant, or `IsOwner` in the " +
		"transaction that writes, stops the late write."},
	"partition": {"concurrency": "the client counts the TTL from when the answer to a keep-alive arrived, and looks once a second for sessions that are over."},
	"forget": {
		"etcd":        "the loss is known at the next renewal, TTL/3 after the last, or at once with `WithLossDetection`. A token stops the earlier holder's writes as soon as the next owner has written.",
		"concurrency": "the session lives on. `IsOwner`, in the transaction that writes, refuses the write of a lost lock.",
	},
}

// server describes the members.
func server() string {
	st, err := three(report.Subject{})
	if err != nil {
		return "etcd, three members"
	}
	defer st.Close()
	s := st.(*stage)
	status, err := s.client.Status(context.Background(), s.members[0].Endpoint())
	if err != nil {
		return "etcd, three members"
	}
	return "etcd " + status.Version + ", three members"
}
