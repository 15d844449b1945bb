package compare

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// granting is a grant of the contended key in the list that Redis itself makes of its commands: the
// name of the Locker begins the claim's.
var granting = regexp.MustCompile(`lua\] "SET" "m:contended \d+" "([^:"]+):\d+"`)

// TestRecorder: grants and changes of process are those of a recorder that knows nothing of the
// comparison: the server's own list of what was set, in its order.
func TestRecorder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := &stores{own: true, mark: "m:", urls: []string{server.URL()}}
	r, err := newRing([]place{{Name: "setnx", URL: "setnx+" + server.URL(), Mark: "m:"}}, s)
	require.NoError(t, err)
	t.Cleanup(r.close)
	monitor, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = monitor.Close() })
	require.NoError(t, monitor.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprint(monitor, "MONITOR\r\n")
	require.NoError(t, err)
	lines := bufio.NewScanner(monitor)
	require.True(t, lines.Scan(), "OK")
	type record struct{ grants, changes int }
	recorded := make(chan record, 1)
	go func() {
		var seen record
		last := ""
		for lines.Scan() && !regexp.MustCompile(`"(?i:echo)" "over"`).MatchString(lines.Text()) {
			if of := granting.FindStringSubmatch(lines.Text()); of != nil {
				if seen.grants++; last != "" && last != of[1] {
					seen.changes++
				}
				last = of[1]
			}
		}
		recorded <- seen
	}()
	_, f, err := r.fight(t.Context(), "setnx", time.Second)
	require.NoError(t, err)
	require.NoError(t, server.Client(t).Echo(t.Context(), "over").Err())
	seen := <-recorded
	t.Log(seen, f.grants, f.changes)
	require.Positive(t, seen.grants)
	// What the end of the bout cuts off may have been granted: one for each process.
	require.InDelta(t, seen.grants, f.grants, max(contenders, 0.05*float64(seen.grants)))
	require.InDelta(t, seen.changes, f.changes, max(contenders, 0.05*float64(seen.changes)))
}
