package postgres

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/distlock/locker/driver"
	"github.com/jackc/pgx/v5"
)

//go:embed sql
var files embed.FS

// statements are the driver's, for one table. Each is a transaction by itself, at READ
// COMMITTED: it looks for rows in a snapshot of its beginning, but a row it is to change it
// locks first, and judges it by its newest version. (At a stricter level the server
// refuses instead.) Leases are compared with clock_timestamp(), the time at that moment,
// as now() is from before a wait for the row. What is sent twice, or late, finds the id of
// another claim, or its own work done.
type statements struct {
	table, schema, acquire, renew, extend, release, inspect, keys string

	again   string // acquire, of a key whose row is there and free
	free    string // release, of a claim with a token, without sweeping
	quietly string // release without NOTIFY
}

var comment = regexp.MustCompile(`(?m)^--.*\n`)

func newStatements(table string) (statements, error) {
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if p == "" || len(p) > 63 || len(parts) > 2 || strings.ContainsRune(p, 0) || strings.Contains(p, "$create$") {
			return statements{}, fmt.Errorf("%w: the table %q: table or schema.table, each of 1 to 63 bytes", driver.ErrInvalid, table)
		}
	}
	quoted := pgx.Identifier(parts).Sanitize()
	notify := "pg_notify('" + channel + "', encode(hash, 'hex'))"
	read := func(name string) string {
		text, _ := files.ReadFile("sql/" + name + ".sql") // it is compiled in
		return strings.NewReplacer(
			"{table}", quoted,
			// With E no setting of the session says what a backslash is.
			"{literal}", "E'"+strings.NewReplacer("'", "''", `\`, `\\`).Replace(quoted)+"'",
			"{notify}", notify,
			// How long a statement waits for a row: longer than a command of another process has
			// it. The setting ends with the transaction.
			"{patience}", "set_config('lock_timeout', '50ms', true) <> ''",
			"{unflushed}", "set_config('synchronous_commit', 'off', true) <> ''",
			// Rounded up to a minute, so that the index on forget rarely changes.
			"{minute after}", "interval '1 min' + date_trunc('minute', clock_timestamp() + interval '1 ms' *",
		).Replace(comment.ReplaceAllString(string(text), ""))
	}
	sql := statements{
		table: quoted, schema: read("schema"), acquire: read("acquire"), renew: read("renew"), extend: read("extend"),
		release: read("release"), inspect: read("inspect"), keys: read("keys"), again: read("again"), free: read("free"),
	}
	sql.quietly = strings.Replace(sql.release, notify, "NULL", 1)
	return sql, nil
}
