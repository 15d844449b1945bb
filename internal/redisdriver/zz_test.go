package redisdriver

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// the confirmation of an abandoned subscription counts for the next topic
func TestZConfirm(t *testing.T) {
	h := &hub{topics: map[string]*topic{}}
	s := &session{writing: true} // ops are queued, nothing is sent
	h.cur = s
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.watch(ctx, "c") // sub 1, abandoned
	t.Log(err)
	got := make(chan struct{})
	go func() { _, _ = h.watch(t.Context(), "c"); close(got) }()
	time.Sleep(20 * time.Millisecond)
	t.Log("commands in order:", s.ops)
	h.confirm(s, "c") // the server's answer to the first of them
	select {
	case <-got:
		t.Error("Watch returned on the confirmation of sub 1: unsub and sub 2 are still to come")
	case <-time.After(100 * time.Millisecond):
	}
}

func TestZClusterSubscribe(t *testing.T) {
	srv := redistest.Start(t, redistest.WithConfig("--cluster-enabled", "yes"))
	ctx := t.Context()
	one := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer one.Close()
	if err := one.Do(ctx, "cluster", "addslotsrange", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if one.Set(ctx, "x", 1, time.Second).Err() == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	defer c.Close()
	d, err := NewDriver(c, Protocol{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := d.NewSignals("redisson_lock__channel:")
	defer s.Close()
	_, p := s.Channel("a")
	t.Log("publish by", p)
	res := make(chan error, 20)
	ws := make([]locker.Watch, 20)
	for i := range 20 {
		go func() {
			w, err := s.Watch(ctx, string(rune('a'+i)))
			ws[i] = w
			res <- err
		}()
	}
	bad := 0
	for range 20 {
		if err := <-res; err != nil {
			if bad == 0 {
				t.Log(err)
			}
			bad++
		}
	}
	t.Log("failed watches at once:", bad, "of 20")
	_, err = s.Watch(ctx, "zzz")
	t.Log("one alone afterwards:", err)
	if bad > 0 {
		t.Error("CROSSSLOT")
	}
	// one at a time, then the connection dies
	d2, _ := NewDriver(c, Protocol{Name: "x"})
	defer d2.Close()
	s2 := d2.NewSignals("redisson_lock__channel:")
	defer s2.Close()
	w1, err := s2.Watch(ctx, "a")
	t.Log(err)
	_, err = s2.Watch(ctx, "b")
	t.Log(err)
	one.Do(ctx, "client", "kill", "type", "pubsub")
	time.Sleep(time.Second)
	for len(w1.C()) > 0 {
		<-w1.C()
	}
	ch, _ := s2.Channel("a")
	t.Log("receivers after reconnect:", one.SPublish(ctx, ch, "0").Val())
	_, err = s2.Watch(ctx, "c")
	t.Log("new watch after reconnect:", err)
}
