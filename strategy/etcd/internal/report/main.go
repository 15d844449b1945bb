//go:build unix

// Command report brings faults about for strategy etcd and for etcd's own package concurrency, on three members and
// with real processes, and writes what happened into docs/report.md. It is to be run in this module, whose
// internal/member it compiles.
//
//	go run ./internal/report -case partition
package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/report"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func main() {
	report.Serve(subjects)
	os.Exit(members.Tests{M: program{}}.Run())
}

// program runs under members.Tests.
type program struct{}

func (program) Run() int { return etcdReport().Main() }

func etcdReport() report.Report {
	return report.Report{
		Store: "etcd", Dir: "strategy/etcd", Program: "./internal/report", Server: server,
		Subjects: subjects, Cases: etcdCases(),
	}
}

var subjects = []report.Subject{
	{Name: "etcd", Nodes: 3, Renews: true, Reports: true, Tokens: true, Check: "`Err`", Open: openOurs},
	{
		Name: "concurrency", Module: "go.etcd.io/etcd/client/v3", Nodes: 3, Renews: true, Reports: true, Tokens: true,
		Check: "`Session.Done`", Open: openConcurrency,
	},
}

// dial makes a client as the README of this module says.
func dial(t report.Target) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: t.Addrs, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(),
	})
}

func openOurs(t report.Target, ttl time.Duration) (report.Client, error) {
	client, err := dial(t)
	if err != nil {
		return nil, err
	}
	l, err := etcd.New(client, locker.WithTTL(ttl))
	return report.Ours(l), err
}

// openConcurrency has a session for the process, and a new one when that has ended. The token is the revision of
// the grant.
func openConcurrency(t report.Target, ttl time.Duration) (report.Client, error) {
	client, err := dial(t)
	if err != nil {
		return nil, err
	}
	session := func() (*concurrency.Session, error) {
		return concurrency.NewSession(client, concurrency.WithTTL(int(ttl/time.Second)))
	}
	var mu sync.Mutex
	s, err := session()
	present := func() (_ *concurrency.Session, err error) {
		mu.Lock()
		defer mu.Unlock()
		if s == nil || over(s) {
			s, err = session()
		}
		return s, err
	}
	return func(ctx context.Context, key string) (h report.Held, err error) {
		err = report.Again(ctx, func() error {
			s, err := present()
			if err != nil {
				return err
			}
			m := concurrency.NewMutex(s, key)
			if err := m.Lock(ctx); err != nil {
				return err
			}
			h = report.Held{
				Token:  m.Header().Revision,
				Holds:  func(context.Context) (bool, error) { return !over(s), nil },
				Unlock: m.Unlock,
			}
			return nil
		})
		return h, err
	}, err
}

func over(s *concurrency.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
