package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// serveRESP serves h's driver and its store as the soak wants it.
func serveRESP(tb testing.TB, h *fakeHarness) (addr string) {
	tb.Helper()
	srv, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.Close)
	d := h.fakeDriver(h.s)
	remote := &Remote{d}
	ctx := context.Background()
	for name, f := range map[string]server.Cmd{
		"EVALSHA": func(c *server.Peer, _ string, args []string) {
			var command Command
			var reply Reply
			if err := json.Unmarshal([]byte(args[0]), &command); err != nil {
				c.WriteError("ERR " + err.Error())
				return
			}
			_ = remote.Do(command, &reply)
			text, err := json.Marshal(reply)
			if err != nil {
				c.WriteError("ERR " + err.Error())
				return
			}
			c.WriteBulk(string(text))
		},
		// SUBSCRIBE key: a line for each signal, the first one at once.
		"SUBSCRIBE": func(c *server.Peer, _ string, args []string) {
			w, err := d.(driver.Notifier).Watch(ctx, args[0])
			if err != nil {
				c.WriteError("ERR " + err.Error())
				return
			}
			gone := make(chan struct{})
			c.OnDisconnect(func() {
				close(gone)
				w.Close()
			})
			c.WriteInline("signal")
			go func() {
				for {
					select {
					case <-w.C():
						c.Block(func(out *server.Writer) { out.WriteInline("signal") })
						c.Flush()
					case <-gone:
						return
					}
				}
			}()
		},
		"FLUSHALL": func(c *server.Peer, _ string, _ []string) {
			_ = h.Flush(ctx)
			c.WriteOK()
		},
	} {
		if err := srv.Register(name, f); err != nil {
			tb.Fatal(err)
		}
	}
	return srv.Addr().String()
}

// respRemote is a remote on a server of serveRESP.
type respRemote struct {
	remote
	addr string
}

// unretried are clients that send each command once, by address: a process has one.
var unretried sync.Map

func newRESPRemote(client redis.UniversalClient) respRemote {
	o := *client.(*redis.Client).Options()
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	shared, ok := unretried.Load(o.Addr)
	if !ok {
		shared, _ = unretried.LoadOrStore(o.Addr, redis.NewClient(&o))
	}
	return respRemote{respCommands(shared.(*redis.Client)), o.Addr}
}

// respCommands sends commands by rdb.
func respCommands(rdb *redis.Client) remote {
	return remote{func(ctx context.Context, c Command) (reply Reply, err error) {
		text, err := json.Marshal(c)
		if err != nil {
			return Reply{}, err
		}
		// The client minds a context's deadline, not its cancellation.
		answered := make(chan *redis.Cmd, 1)
		go func() { answered <- rdb.Do(ctx, "evalsha", string(text)) }()
		select {
		case cmd := <-answered:
			answer, err := cmd.Text()
			if err != nil {
				return Reply{}, err
			}
			err = json.Unmarshal([]byte(answer), &reply)
			return reply, err
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		}
	}, func() error { return nil }}
}

var _ fullDriver = respRemote{}

func (r respRemote) Configure(c driver.Config) (driver.Settings, error) {
	if len(c.Options) > 0 {
		return driver.Settings{}, fmt.Errorf("%w: no such option: %v", locker.ErrInvalid, c.Options[0])
	}
	return driver.Settings{}, nil
}

// Close tells the store's side, if that can be reached. The connections stay: what was
// not yet released still can be.
func (r respRemote) Close() error {
	_, _ = r.do(context.Background(), Command{Op: opClose})
	return nil
}

func (r respRemote) Watch(ctx context.Context, key string) (driver.Watch, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	w := &respWatch{conn: conn, c: make(chan struct{}, 1)}
	lines := bufio.NewReader(conn)
	_, err = fmt.Fprintf(conn, "*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%s\r\n", len(key), key)
	if err == nil {
		var line string
		if line, err = lines.ReadString('\n'); err == nil && !strings.HasPrefix(line, "+") {
			err = fmt.Errorf("SUBSCRIBE: %s", line)
		}
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	w.reading.Go(func() { w.read(lines) })
	return w, nil
}

// respWatch is a connection that tells of signals.
type respWatch struct {
	conn    net.Conn
	c       chan struct{}
	reading sync.WaitGroup
}

func (w *respWatch) read(lines *bufio.Reader) {
	defer close(w.c)
	for {
		if _, err := lines.ReadString('\n'); err != nil {
			return
		}
		select {
		case w.c <- struct{}{}:
		default:
		}
	}
}

func (w *respWatch) C() <-chan struct{} { return w.c }

func (w *respWatch) Close() {
	_ = w.conn.Close()
	w.reading.Wait()
}
