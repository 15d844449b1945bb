package compare

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// far is the address of a server, 10 ms away in each direction.
func far(t *testing.T, addr string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	carry := func(to, from net.Conn) {
		defer to.Close()
		for b := make([]byte, 1<<20); ; {
			n, err := from.Read(b)
			time.Sleep(10 * time.Millisecond) // the way; nothing is waited for
			if _, werr := to.Write(b[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				return
			}
			go carry(server, near)
			go carry(near, server)
		}
	}()
	return l.Addr().String()
}

// TestCleanUpFarAway: what a comparison leaves on a server that is not near goes in a few
// round trips.
func TestCleanUpFarAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := &stores{mark: "locker-compare:test:", urls: []string{"redis://" + far(t, server.Addr())}}
	const keys = 8000
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Set(t.Context(), "others", "", 0)
		for i := range keys {
			p.Set(t.Context(), fmt.Sprint("locker:queue:{", s.mark, i, "}"), "", time.Hour)
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, s.cleanUp(t.Context()))
	require.Equal(t, []string{"others"}, rdb.Keys(t.Context(), "*").Val())
}

// TestLeftIsOneLine: the errors of any number of servers make one line.
func TestLeftIsOneLine(t *testing.T) {
	t.Parallel()
	s := &stores{mark: "locker-compare:test:", urls: []string{"redis://127.0.0.1:1", "redis://127.0.0.1:2"}}
	err := s.cleanUp(t.Context())
	require.ErrorContains(t, err, s.mark)
	require.NotContains(t, err.Error(), "\n")
}
