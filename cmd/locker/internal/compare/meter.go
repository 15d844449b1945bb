package compare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// load is the work of all servers of a strategy so far. What is not known is -1.
type load struct {
	commands float64
	cpu      time.Duration
}

// meter reads the work of servers.
type meter struct {
	redis []*redis.Client
	pid   int // of another server that this program has started
	own   bool
}

func (m *meter) read(ctx context.Context) load {
	l := load{commands: -1, cpu: -1}
	if len(m.redis) > 0 {
		if redisLoad, err := readRedis(ctx, m.redis); err == nil {
			l = redisLoad
		}
		if !m.own { // it is others' work, too
			l.cpu = -1
		}
	}
	if m.pid != 0 {
		if cpu, err := cpuOf(m.pid); err == nil {
			l.cpu = cpu
		}
	}
	return l
}

// since returns the work since an earlier reading; what is not known is -1.
func (l load) since(before load) load {
	d := load{commands: -1, cpu: -1}
	if before.commands >= 0 && l.commands >= before.commands {
		d.commands = l.commands - before.commands
	}
	if before.cpu >= 0 && l.cpu >= before.cpu {
		d.cpu = l.cpu - before.cpu
	}
	return d
}

// readRedis counts the commands that locks are made of as clients send them, not those
// that scripts call.
func readRedis(ctx context.Context, on []*redis.Client) (l load, err error) {
	for _, c := range on {
		stats, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			return l, err
		}
		for line := range strings.Lines(stats) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			switch name {
			case "evalsha", "eval", "blpop", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe":
				calls, _, _ := strings.Cut(rest, ",")
				n, _ := strconv.ParseFloat(calls, 64)
				l.commands += n
			}
		}
		cpu, err := c.Info(ctx, "cpu").Result()
		if err != nil {
			return l, err
		}
		for line := range strings.Lines(cpu) {
			for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
				if v, ok := strings.CutPrefix(strings.TrimSpace(line), field); ok {
					n, _ := strconv.ParseFloat(v, 64)
					l.cpu += time.Duration(n * float64(time.Second))
				}
			}
		}
	}
	return l, nil
}

// cpuOf returns the time that the threads of a process and of its children have run. It is on
// Linux only.
func cpuOf(pid int) (total time.Duration, err error) {
	main := strconv.Itoa(pid)
	children, _ := filepath.Glob("/proc/" + main + "/task/*/children")
	pids := []string{main}
	for _, file := range children {
		text, _ := os.ReadFile(file)
		pids = append(pids, strings.Fields(string(text))...)
	}
	found := false
	for _, pid := range pids {
		threads, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			if fields := strings.Fields(string(text)); len(fields) > 0 {
				ns, _ := strconv.ParseInt(fields[0], 10, 64)
				total += time.Duration(ns)
				found = true
			}
		}
	}
	if !found {
		return 0, errors.New("the CPU of processes is not known here")
	}
	return total, nil
}

// some reports whether anything can be known.
func (m *meter) some() bool { return len(m.redis) > 0 || m.pid != 0 }
