package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

// cluster is three members. One at a time is in trouble.
type cluster []*members.Server

func start(context.Context) (soak.Servers, error) {
	all, err := members.Launch(3)
	if err != nil {
		return nil, err
	}
	c := cluster(all)
	return c, c.settle()
}

// Addrs implements soak.Servers.
func (c cluster) Addrs() (all []string) {
	for _, s := range c {
		all = append(all, s.Socket())
	}
	return all
}

// Close implements soak.Servers.
func (c cluster) Close() { members.StopAll(c) }

// Strike implements soak.Servers.
func (c cluster) Strike(ctx context.Context, r *rand.Rand, fault string) error {
	leader, err := c.leader()
	if err != nil {
		return err
	}
	what, whom, _ := strings.Cut(fault, "-")
	s := c[leader]
	if whom == "follower" {
		s = c[(leader+1+r.IntN(len(c)-1))%len(c)]
	}
	last := func() {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.Int64N(int64(4 * time.Second)))):
		}
	}
	switch what {
	case "kill":
		s.Kill()
		last()
		err = s.Start()
	case "freeze":
		s.Freeze()
		last()
		s.Thaw()
	case "isolate":
		err = s.Tell("cut")
		last()
		err = errors.Join(err, s.Tell("mend"))
	}
	return errors.Join(err, c.settle())
}

// patience is for what takes a second or two on a machine that is not busy.
const patience = 30 * time.Second

// leader returns the index of the leader.
func (c cluster) leader() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := members.Dial(c...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	for {
		leader := slices.IndexFunc(c, func(s *members.Server) bool {
			status, err := client.Status(ctx, s.Endpoint())
			return err == nil && status.Leader == status.Header.MemberId
		})
		if leader >= 0 {
			return leader, nil
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("no member leads after %v", patience)
		}
	}
}

// settle returns when each member answers a read that needs the majority.
func (c cluster) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range c {
		client, err := members.Dial(s)
		if err != nil {
			return err
		}
		for { // an election fails reads
			if _, err = client.Get(ctx, "none"); err == nil || ctx.Err() != nil {
				break
			}
		}
		_ = client.Close()
		if err != nil {
			return fmt.Errorf("%s does not serve after %v: %w", s.Name, patience, err)
		}
	}
	return nil
}
