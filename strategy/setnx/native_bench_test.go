package setnx_test

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/setnx"
)

func TestNativeAB(t *testing.T) {
	if os.Getenv("LOCKER_NATIVE_AB") == "" {
		t.Skip()
	}
	rounds, _ := strconv.Atoi(os.Getenv("LOCKER_NATIVE_AB"))
	server := redistest.Start(t)
	rdb := server.Client(t)
	ctx := context.Background()
	fmt.Println(rdb.InfoMap(ctx, "server").Item("Server", "valkey_version"), rdb.InfoMap(ctx, "server").Item("Server", "redis_version"))
	l, err := setnx.New(rdb)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := func(of string) float64 {
		v, _ := strconv.ParseFloat(rdb.InfoMap(ctx, "cpu").Item("CPU", of), 64)
		return v
	}
	scpu := func() float64 { return 1e6 * (f("used_cpu_sys") + f("used_cpu_user")) }
	own := func() float64 {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
	}
	var lat [2][]float64
	for i := range 60000 {
		k := i % 2
		redisconn.NativeOff.Store(k == 0)
		began := time.Now()
		le, err := l.Lock(ctx, "solo")
		if err != nil {
			t.Fatal(err)
		}
		if err := le.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		lat[k] = append(lat[k], float64(time.Since(began).Nanoseconds())/1e3)
	}
	for part := range 5 {
		var seg [2][]float64
		for k := range 2 {
			seg[k] = append(seg[k], lat[k][part*6000:(part+1)*6000]...)
			sort.Float64s(seg[k])
		}
		for _, q := range []int{5, 10, 25, 50} {
			a, b := seg[0][6000*q/100], seg[1][6000*q/100]
			fmt.Printf("solo latency part %d p%d script %.1f native %.1f us, pairs/s ratio %.3f\n", part, q, a, b, a/b)
		}
	}
	for _, g := range []int{1, 256} {
		var out [2][4][]float64
		for r := range 2 * rounds {
			native := (r+r/2)%2 == 1
			redisconn.NativeOff.Store(!native)
			rdb.ConfigResetStat(ctx)
			var n atomic.Int64
			var wg sync.WaitGroup
			s0, o0, t0 := scpu(), own(), time.Now()
			end := t0.Add(400 * time.Millisecond)
			for i := range g {
				wg.Go(func() {
					key := fmt.Sprintf("k:%d", i)
					for time.Now().Before(end) {
						le, err := l.Lock(ctx, key)
						if err != nil {
							t.Error(err)
							return
						}
						if err := le.Unlock(ctx); err != nil {
							t.Error(err)
							return
						}
						n.Add(1)
					}
				})
			}
			wg.Wait()
			el := time.Since(t0).Seconds()
			s1, o1 := scpu(), own()
			k := 0
			if native {
				k = 1
			}
			c := float64(n.Load())
			usec := 0.0
			st := rdb.InfoMap(ctx, "commandstats")
			for _, cmd := range []string{"cmdstat_evalsha", "cmdstat_delifeq", "cmdstat_delex"} {
				var calls, us int64
				fmt.Sscanf(st.Item("Commandstats", cmd), "calls=%d,usec=%d", &calls, &us)
				usec += float64(us)
			}
			for j, v := range []float64{c / el, (s1 - s0) / c, (o1 - o0) / c, usec / c} {
				out[k][j] = append(out[k][j], v)
			}
		}
		for j, name := range []string{"pairs/s", "server cpu us/pair", "client cpu us/pair", "commandstats us/pair"} {
			var ratios []float64
			for r := range rounds {
				ratios = append(ratios, out[1][j][r]/out[0][j][r])
			}
			sort.Float64s(ratios)
			q := func(s []float64) string {
				sort.Float64s(s)
				return fmt.Sprintf("%.1f (%.1f-%.1f)", s[len(s)/2], s[len(s)/4], s[3*len(s)/4])
			}
			fmt.Printf("g=%d %-22s script %s native %s ratio med %.3f q1 %.3f q3 %.3f\n", g, name, q(out[0][j]), q(out[1][j]), ratios[len(ratios)/2], ratios[len(ratios)/4], ratios[3*len(ratios)/4])
		}
	}
}
