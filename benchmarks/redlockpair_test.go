//go:build unix

package benchmarks

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func TestRedlockPairs(t *testing.T) {
	if os.Getenv("LOCKER_REDLOCK_PAIRS") == "" {
		t.Skip()
	}
	for _, nodes := range []int{3, 5} {
		var rdbs []redis.UniversalClient
		var pools []redsyncredis.Pool
		var conns []net.Conn
		var rs []*bufio.Reader
		for range nodes {
			s := redistest.Start(t)
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
			rdbs = append(rdbs, rdb)
			pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: s.Addr()})))
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			conns, rs = append(conns, c), append(rs, bufio.NewReader(c))
		}
		ctx := context.Background()
		fenced, _ := redlock.New(rdbs)
		bare, _ := redlock.New(rdbs, locker.WithoutFencing())
		lock := func(l *locker.Client) func() {
			return func() {
				le, err := l.Lock(ctx, "k")
				if err != nil {
					t.Fatal(err)
				}
				if err := le.Unlock(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		sync := redsync.New(pools...)
		rsync := func(ff bool) func() {
			return func() {
				m := sync.NewMutex("k", redsync.WithFailFast(ff))
				if err := m.Lock(); err != nil {
					t.Fatal(err)
				}
				if ok, err := m.Unlock(); !ok {
					t.Fatal(err)
				}
			}
		}
		sha, err := rdbs[0].ScriptLoad(ctx, `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`).Result()
		for _, r := range rdbs {
			_, err = r.ScriptLoad(ctx, `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`).Result()
		}
		if err != nil {
			t.Fatal(err)
		}
		set := []byte("*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nme\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n")
		del := []byte(fmt.Sprintf("*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$1\r\nk\r\n$2\r\nme\r\n", sha))
		raw := func() {
			for _, m := range [][]byte{set, del} {
				for i := range nodes/2 + 1 {
					_, _ = conns[i].Write(m)
				}
				for i := range nodes/2 + 1 {
					if l, err := rs[i].ReadString('\n'); err != nil || l[0] == '-' {
						t.Fatal(l, err)
					}
				}
			}
		}
		who := []struct {
			name string
			f    func()
		}{{"redsync", rsync(false)}, {"redsync fail-fast", rsync(true)}, {"redlock", lock(fenced)}, {"redlock unfenced", lock(bare)}, {"raw, one goroutine, a majority", raw}}
		lat := make([][]float64, len(who))
		for i := range 4000 {
			for j, w := range who {
				time.Sleep(300 * time.Microsecond)
				w.f()
				time.Sleep(100 * time.Microsecond)
				w.f()
				b := time.Now()
				w.f()
				if i >= 200 {
					lat[j] = append(lat[j], float64(time.Since(b).Nanoseconds())/1e3)
				}
			}
		}
		for j := range who {
			sort.Float64s(lat[j])
		}
		for j, w := range who {
			sort.Float64s(lat[j])
			q := func(p int) float64 { return lat[j][len(lat[j])*p/100] }
			fmt.Printf("%d nodes %-32s p5 %.0f p10 %.0f p25 %.0f p50 %.0f us; speed / redsync ff at p10 %.2f p25 %.2f p50 %.2f\n", nodes, w.name, q(5), q(10), q(25), q(50),
				lat[1][len(lat[1])*10/100]/q(10), lat[1][len(lat[1])*25/100]/q(25), lat[1][len(lat[1])*50/100]/q(50))
		}
		_ = fenced.Close()
		_ = bare.Close()
	}
}
