package mysql

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/distlock/locker/driver"
)

//go:embed sql
var files embed.FS

// statements are the driver's, for one table: formats, with verbs for what is about a command;
// schema and sweep are plain. Each is a transaction by itself, in one round trip: it has no
// parameters that would need to be prepared, and binary values are hex literals, which no setting
// of the session reads in another way.
//
// A row that a statement changes it locks first, and judges by its newest version, at every
// isolation level. It waits for one row at most, and holds no other meanwhile, so that no two wait
// for each other but two attempts at a row that is being deleted: the server rolls one back.
//
// Now is the time at which the statement arrived. After a wait for the row that is too early at
// worst: a free key is refused, a grant is as short as its caller counts it. It is in the binary
// log, too, so that a replica of statements has the same times, which SYSDATE is not.
type statements struct {
	table, schema, acquire, renew, extend, held, release, drop, sweep, inspect, keys, lock, signal, signals, heard string
}

const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

var comment = regexp.MustCompile(`(?m)^--.*\n`)

func newStatements(table string) (statements, error) {
	parts := strings.Split(table, ".")
	for i, p := range parts {
		if len(parts) > 2 || p == "" || utf8.RuneCountInString(p) > 64 || !utf8.ValidString(p) || strings.HasSuffix(p, " ") || strings.ContainsFunc(p, isNoName) {
			return statements{}, fmt.Errorf("%w: the table %q: want table or database.table, each of 1 to 64 characters", driver.ErrInvalid, table)
		}
		parts[i] = "`" + strings.ReplaceAll(p, "`", "``") + "`"
	}
	quoted := strings.Join(parts, ".")
	fill := strings.NewReplacer(
		"{table}", strings.ReplaceAll(quoted, "%", "%%"),
		"{now}", now,
		// What forget is rounded up to, so that its index rarely changes.
		"{minute}", "60000000",
		"{granted}", fmt.Sprint(granted),
		"{manual}", fmt.Sprint(manual),
		"{block}", fmt.Sprint(block),
		"{keep}", fmt.Sprint(keep.Microseconds()),
		"{signal}", fmt.Sprint(signalKept.Microseconds()),
	)
	read := func(name string) string {
		text, _ := files.ReadFile("sql/" + name + ".sql") // it is compiled in
		return fill.Replace(comment.ReplaceAllString(string(text), ""))
	}
	plain := strings.NewReplacer("%%", "%") // of what has no verbs
	return statements{quoted, plain.Replace(read("schema")), read("acquire"), read("renew"), read("extend"), read("held"),
		read("release"), read("drop"), plain.Replace(read("sweep")), read("inspect"), read("keys"), read("lock"),
		read("signal"), read("signals"), read("heard")}, nil
}

// isNoName reports whether the server takes r in no name.
func isNoName(r rune) bool { return r == 0 || r > 0xffff }
