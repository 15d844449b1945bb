package compare

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/cmd/locker/internal/servers/serverstest"
	"github.com/distlock/locker/internal/test/redistest"
	_ "github.com/go-sql-driver/mysql" // opens mysql
	_ "github.com/jackc/pgx/v5/stdlib" // opens pgx
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A recorder reads the grants of a contended key from the store itself, and knows nothing of the
// comparison. It returns the ids of the claims, in the order of the grants, when it is asked.
type recorder func(t *testing.T) []string

// TestRecorder: grants, changes of process and shares are those that the store has recorded.
func TestRecorder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"setnx", "hashreentrant", "blpop", "redlock", "postgres", "mysql", "etcd"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, recorded := recordedPlace(t, name)
			r, err := newRing([]place{p}, &stores{own: true, mark: p.Mark})
			require.NoError(t, err)
			t.Cleanup(r.close)
			_, f, err := r.fight(t.Context(), name, 2*time.Second)
			require.NoError(t, err)
			compareWithRecorder(t, f, recorded(t))
		})
	}
}

// compareWithRecorder wants the same within 5 %. What the end of the bout cuts off may have been
// granted: one for each process.
func compareWithRecorder(t *testing.T, f *fought, ids []string) {
	t.Helper()
	last, changes, turns := "", 0, make(map[string]float64)
	for _, id := range ids {
		process, _, _ := strings.Cut(id, ":") // the name of the Locker, which begins the claim's
		if last != "" && last != process {
			changes++
		}
		turns[process]++
		last = process
	}
	least, most := 0.0, 0.0
	for _, n := range turns {
		most = max(most, n)
	}
	if least = most; len(turns) < contenders {
		least = 0
	}
	for _, n := range turns {
		least = min(least, n)
	}
	t.Logf("recorded: %d grants, %d changes; counted: %d, %d", len(ids), changes, f.grants, f.changes)
	require.NotEmpty(t, ids)
	near := func(recorded, counted int, what string) {
		require.InDelta(t, recorded, counted, max(contenders, 0.05*float64(recorded)), what)
	}
	near(len(ids), f.grants, "grants")
	near(changes, f.changes, "changes of process")
	require.InDelta(t, least/most, f.share, 0.05+contenders/most, "share")
}

// recordedPlace starts a store for a strategy, and its recorder.
func recordedPlace(t *testing.T, name string) (place, recorder) {
	t.Helper()
	p := place{Name: name, Mark: "m:"}
	switch name {
	case "redlock":
		var nodes []*redistest.Server
		for range quorumNodes {
			nodes = append(nodes, redistest.Start(t))
			p.Nodes = append(p.Nodes, nodes[len(nodes)-1].URL())
		}
		return p, recordQuorum(t, nodes)
	case "postgres", "mysql", "etcd":
		server := serverstest.Start(t, name)
		p.URL = server.URL
		if name == "mysql" && !strings.Contains(server.About, "MariaDB") {
			t.Skip("only MariaDB keeps all versions of a row")
		}
		return p, map[string]func(*testing.T, string, string) recorder{"postgres": recordPostgres, "mysql": recordMySQL, "etcd": recordEtcd}[name](t, server.URL, server.Dir)
	}
	server := redistest.Start(t)
	p.URL = name + "+" + server.URL()
	grants := recordRedis(t, server)
	return p, func(t *testing.T) (ids []string) {
		for _, g := range grants(t) {
			ids = append(ids, g.id)
		}
		return ids
	}
}

// granting sets the contended key, in the list that Redis itself makes of its commands. A script that was refused reads
// the key next.
var granting, refused = regexp.MustCompile(`^\+([\d.]+) .*lua\] "(?:SET|HSET)" "m:contended \d+" "([^":]+:[^"]+)"`), regexp.MustCompile(`lua\] "GET" "m:contended \d+"`)

type setAt struct{ at, id string }

// recordRedis reads the commands of a server.
func recordRedis(t *testing.T, server *redistest.Server) func(*testing.T) []setAt {
	t.Helper()
	monitor, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = monitor.Close() })
	require.NoError(t, monitor.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprint(monitor, "MONITOR\r\n")
	require.NoError(t, err)
	lines := bufio.NewScanner(monitor)
	require.True(t, lines.Scan(), "OK")
	all := make(chan []setAt, 1)
	go func() {
		var seen []setAt
		set := false // by the line before
		for lines.Scan() && !strings.Contains(strings.ToLower(lines.Text()), `"echo" "over"`) {
			of := granting.FindStringSubmatch(lines.Text())
			switch {
			case of != nil:
				seen = append(seen, setAt{of[1], of[2]})
			case set && refused.MatchString(lines.Text()):
				seen = seen[:len(seen)-1]
			}
			set = of != nil
		}
		all <- seen
	}()
	return func(t *testing.T) []setAt {
		require.NoError(t, server.Client(t).Echo(t.Context(), "over").Err())
		return <-all
	}
}

// recordQuorum counts what a majority has set as granted, and at the time of the last of that majority.
func recordQuorum(t *testing.T, nodes []*redistest.Server) recorder {
	t.Helper()
	var each []func(*testing.T) []setAt
	for _, node := range nodes {
		each = append(each, recordRedis(t, node))
	}
	return func(t *testing.T) (ids []string) {
		var all []setAt
		for _, of := range each {
			here := make(map[string]bool) // a node that is brought the lock again counts once
			for _, s := range of(t) {
				if !here[s.id] {
					all = append(all, s)
				}
				here[s.id] = true
			}
		}
		slices.SortStableFunc(all, func(a, b setAt) int { return strings.Compare(a.at, b.at) })
		on := make(map[string]int)
		for _, s := range all {
			if on[s.id]++; on[s.id] == len(nodes)/2+1 {
				ids = append(ids, s.id)
			}
		}
		return ids
	}
}

// recordPostgres has the server write down each grant, with its token.
func recordPostgres(t *testing.T, _, dir string) recorder {
	t.Helper()
	return recordSQL(t, "pgx", "user=app database=app sslmode=disable host="+dir, `SELECT convert_from(id, 'UTF8') FROM grants ORDER BY token`,
		`CREATE TABLE grants (token bigint, id bytea)`,
		`CREATE FUNCTION granted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.id <> '' AND (TG_OP = 'INSERT' OR NEW.id <> OLD.id) AND position('contended'::bytea IN NEW.key) > 0 THEN
				INSERT INTO grants VALUES (NEW.token, NEW.id);
			END IF;
			RETURN NULL;
		END $$`,
		`CREATE TRIGGER granted AFTER INSERT OR UPDATE ON locker_locks FOR EACH ROW EXECUTE FUNCTION granted()`)
}

// recordMySQL has the server keep all versions of the rows. Triggers the strategy refuses.
func recordMySQL(t *testing.T, at, _ string) recorder {
	t.Helper()
	u, err := url.Parse(at)
	require.NoError(t, err)
	return recordSQL(t, "mysql", "app@unix("+u.Query().Get("socket")+")/app",
		`SELECT DISTINCT id FROM locker_locks FOR SYSTEM_TIME ALL WHERE id <> '' AND lock_key LIKE '%contended%' ORDER BY token`,
		`ALTER TABLE locker_locks ADD SYSTEM VERSIONING`)
}

func recordSQL(t *testing.T, driver, dsn, ask string, statements ...string) recorder {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	return func(t *testing.T) (ids []string) {
		rows, err := db.QueryContext(t.Context(), ask)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var id string
			require.NoError(t, rows.Scan(&id))
			ids = append(ids, id)
		}
		require.NoError(t, rows.Err())
		return ids
	}
}

// recordEtcd reads the history of all keys: of those at a lock, the one that was created first has it.
func recordEtcd(t *testing.T, at, _ string) recorder {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{strings.TrimPrefix(at, "etcd://")}, DialTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	now, err := client.Get(t.Context(), "over")
	require.NoError(t, err)
	return func(t *testing.T) (ids []string) {
		_, err := client.Put(t.Context(), "over", "")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		created := make(map[string]int64) // by id
		holder := ""
		for response := range client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(now.Header.Revision+1)) {
			require.NoError(t, response.Err())
			for _, e := range response.Events {
				if string(e.Kv.Key) == "over" {
					return ids
				}
				key, id, member := strings.Cut(string(e.Kv.Key), "\x00\x01")
				switch {
				case !member || !strings.Contains(key, "contended"):
					continue
				case e.Type == clientv3.EventTypeDelete:
					delete(created, id)
				default:
					created[id] = e.Kv.CreateRevision
				}
				first := ""
				for id, revision := range created {
					if first == "" || revision < created[first] {
						first = id
					}
				}
				if first != holder && first != "" {
					ids = append(ids, first)
				}
				holder = first
			}
		}
		t.Fatal("the history has no end")
		return nil
	}
}
