package postgres

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"regexp"
	"slices"
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

	permits permitStatements
}

// permitStatements are about permits. A row that they change they wait for, in turn.
type permitStatements struct {
	table, acquire, release, count, list string

	again   string // acquire, of a key that has room
	free    string // release, without sweeping
	plain   string // the table's name, as the server's messages have it
	lock    string // acquire, of a lock
	extend  string // renew, of claims of one key
	renew   string
	quietly string // release without NOTIFY
}

var comment = regexp.MustCompile(`(?m)^--.*\n`)

func newStatements(table string) (statements, error) {
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if p == "" || len(p) > maxName || len(parts) > 2 || strings.ContainsRune(p, 0) || strings.Contains(p, "$create$") {
			return statements{}, fmt.Errorf("%w: the table %q: table or schema.table, each of 1 to 63 bytes", driver.ErrInvalid, table)
		}
	}
	quoted, permits := pgx.Identifier(parts).Sanitize(), pgx.Identifier(nameBeside(parts, permitsSuffix)).Sanitize()
	fill := filler(quoted, permits, pgx.Identifier(nameBeside(parts, "_hash")).Sanitize())
	read := func(name string) string {
		return fill.Replace(fill.Replace(text(name))) // what is filled in may have places to fill, too
	}
	renew, releasePermits := read("renewpermits"), read("releasepermits")
	sql := statements{
		table: quoted, schema: read("schema"), acquire: read("acquire"), renew: read("renew"), extend: read("extend"),
		release: read("release"), inspect: read("inspect"), keys: read("keys"), again: read("again"), free: read("free"),
		permits: permitStatements{
			table: permits, plain: strings.Join(nameBeside(parts, permitsSuffix), "."), acquire: read("acquirepermits"), again: read("againpermits"), lock: read("lockpermits"),
			release: strings.ReplaceAll(releasePermits, "{swept}", read("sweptpermits")), free: strings.ReplaceAll(releasePermits, "{swept}", ""),
			extend: strings.ReplaceAll(renew, "{skip}", ""), renew: strings.ReplaceAll(renew, "{skip}", "SKIP LOCKED"),
			count: read("countpermits"), list: read("listpermits"),
		},
	}
	sql.quietly = strings.Replace(sql.release, notifies, "NULL", 1)
	sql.permits.quietly = strings.Replace(sql.permits.release, notifies, "NULL", 1)
	return sql, nil
}

const permitsSuffix = "_permits"

// nameBeside returns a name with that suffix, for the name of the table of keys. What would be too long for
// the server is replaced by its hash.
func nameBeside(parts []string, suffix string) []string {
	parts = slices.Clone(parts)
	last := &parts[len(parts)-1]
	if len(*last)+len(suffix) > maxName {
		*last = fmt.Sprintf("%x", sha256.Sum224([]byte(*last)))[:maxName-len(permitsSuffix)]
	}
	*last += suffix
	return parts
}

// maxName is how many bytes a name of the server has at most.
const maxName = 63

func text(name string) string {
	text, _ := files.ReadFile("sql/" + name + ".sql") // it is compiled in
	return comment.ReplaceAllString(string(text), "")
}

const notifies = "pg_notify('" + channel + "', encode(hash, 'hex'))"

// filler fills the places of the statements.
func filler(table, permits, function string) *strings.Replacer {
	literal := func(name string) string {
		// With E no setting of the session says what a backslash is.
		return "E'" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(name) + "'"
	}
	ahead := func(waited string) string {
		return "CASE WHEN bid_left > 0 AND NOT {own bid} AND bid_since <= micros - 1000 * greatest(" + waited + "::bigint, 0) THEN bids_for ELSE 0 END"
	}
	return strings.NewReplacer(
		"{table}", table,
		"{permits}", permits,
		"{function}", function,
		"{literal}", literal(table),
		"{permits literal}", literal(permits),
		"{notify}", notifies,
		// How long a statement waits for a row: longer than a command of another process has
		// it. The setting ends with the transaction.
		"{patience}", "set_config('lock_timeout', '50ms', true) <> ''",
		// The head of permits is locked by one command after the other, each until its commit.
		"{turn}", "set_config('lock_timeout', '500ms', true) <> ''",
		"{unflushed}", "set_config('synchronous_commit', 'off', true) <> ''",
		// Rounded up to a minute, so that the index on forget rarely changes.
		"{minute after}", "interval '1 min' + date_trunc('minute', clock_timestamp() + interval '1 ms' *",
		"{is permits}", "substr(id, 1, 8) = 'permits '",
		"{judged seen}", strings.ReplaceAll(text("judged"), "{it}", "seen"),
		"{judged head}", strings.ReplaceAll(text("judged"), "{it}", "head"),
		"{same era}", "p.era IS NOT DISTINCT FROM",
		"{same hash}", "p.hash IS NOT DISTINCT FROM",
		"{text of id}", "encode($2::bytea, 'escape')",
		"{own bid}", "split_part(bid_claim, ':', 1) = split_part(encode($2::bytea, 'escape'), ':', 1)",
		"{ahead $9}", ahead("$9"),
		"{ahead $7}", ahead("$7"),
		"{bids}", fmt.Sprintf("(ahead = 0 AND $9::bigint >= 0 AND ($7::bigint > 1 OR $9::bigint >= %d))", driver.Patience.Milliseconds()),
		"{bid time}", fmt.Sprint(driver.BidTime.Microseconds()),
		"{most permits}", fmt.Sprint(driver.MaxPermits),
		// How many claims that have ended one command forgets at most.
		"{sweep}", "300",
	)
}
