package mysql

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/distlock/locker/driver"
)

//go:embed sql
var files embed.FS

// statements are the driver's, for one table: formats, with verbs for what is about a command;
// schema and sweep are plain. Each is a transaction by itself, in one round trip: it has no
// parameters that would need to be prepared, and binary values are hex literals, which no setting
// of the session reads in another way: with EMPTY_STRING_IS_NULL a pair of quotes is NULL, and an empty hex literal is not. With
// HIGH_NOT_PRECEDENCE a NOT is about the next operand alone: a comparison behind it is in parentheses.
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

	permits permitStatements
}

// permitStatements are about permits: see sql/permits.sql. Each locks the head of its key before it
// changes a claim. Only renewals wait for no head.
type permitStatements struct {
	table, schema, grant, acquire, give, release, lock, look, row, ended, end, renew, extend, held, last, count, list, out, old, drop string
}

const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

var comment = regexp.MustCompile(`(?m)^--.*\n`)

// ofDefault are the statements for the default table.
var ofDefault = sync.OnceValue(func() statements {
	sql, _ := newStatements(defaultTable)
	return sql
})

func newStatements(table string) (statements, error) {
	parts := strings.Split(table, ".")
	for i, p := range parts {
		if len(parts) > 2 || p == "" || utf8.RuneCountInString(p) > maxName || !utf8.ValidString(p) || strings.HasSuffix(p, " ") || strings.ContainsFunc(p, isNoName) {
			return statements{}, fmt.Errorf("%w: the table %q: want table or database.table, each of 1 to %d characters", driver.ErrInvalid, table, maxName)
		}
		parts[i] = "`" + strings.ReplaceAll(p, "`", "``") + "`"
	}
	quoted, permits := strings.Join(parts, "."), strings.Join(permitsTable(parts), ".")
	names := strings.NewReplacer("{table}", strings.ReplaceAll(quoted, "%", "%%"), "{permits}", strings.ReplaceAll(permits, "%", "%%"))
	read := func(name string) string {
		// The inserted texts have places to fill, too. The names come last: a brace in them is no place.
		return names.Replace(places.Replace(places.Replace(places.Replace(places.Replace(text(name))))))
	}
	plain := func(name string) string { return strings.ReplaceAll(read(name), "%%", "%") } // has no verbs
	return statements{
		table: quoted, schema: plain("schema"), acquire: read("acquire"), renew: read("renew"), extend: read("extend"), held: read("held"),
		release: read("release"), drop: read("drop"), sweep: plain("sweep"), inspect: read("inspect"), keys: read("keys"), lock: read("lock"),
		signal: read("signal"), signals: read("signals"), heard: read("heard"),
		permits: permitStatements{
			table: permits, schema: plain("permits"), grant: read("grantpermits"), acquire: read("acquirepermits"), give: read("givepermits"), release: read("releasepermits"), lock: read("lockpermits"),
			look: read("lookpermits"), row: read("rowpermits"), ended: read("endedpermits"), end: read("endpermits"), renew: read("renewpermits"),
			extend: read("extendpermits"), held: read("heldpermits"), last: read("lastpermits"), count: read("countpermits"),
			list: read("listpermits"), out: read("outpermits"), old: plain("oldpermits"), drop: read("droppermits"),
		},
	}, nil
}

// missing returns the table that an error of the server says is not there.
func (s statements) missing(err error) string {
	if strings.Contains(err.Error(), permitsSuffix+"'") {
		return s.permits.table
	}
	return s.table
}

// permitsTable returns the name of the table of permits, for that of the keys. What would be too long for
// the server is replaced by its hash. The names are quoted.
func permitsTable(quoted []string) []string {
	parts := slices.Clone(quoted)
	last := &parts[len(parts)-1]
	name := strings.ReplaceAll((*last)[1:len(*last)-1], "``", "`")
	if utf8.RuneCountInString(name)+len(permitsSuffix) > maxName {
		name = fmt.Sprintf("%x", sha256.Sum224([]byte(name)))
	}
	*last = "`" + strings.ReplaceAll(name, "`", "``") + permitsSuffix + "`"
	return parts
}

const (
	permitsSuffix = "_permits"
	maxName       = 64 // characters of a name of the server
)

func text(name string) string {
	text, _ := files.ReadFile("sql/" + name + ".sql") // it is compiled in
	return comment.ReplaceAllString(string(text), "")
}

// places fills the places of the statements, except the names of the tables.
var places = func() *strings.Replacer {
	const owned = "CASE WHEN NOT {live} OR h.owner = x'' THEN 0 "
	const silent = "WHEN {number of bid 3} NOT BETWEEN {now} - {bid time} + 1 AND {now} THEN 0 "
	var words []string
	for n := 1; n <= 5; n++ {
		// The word of this number, as a text.
		word := func(of string) string {
			return fmt.Sprintf("SUBSTRING_INDEX(SUBSTRING_INDEX(%s, ' ', %d), ' ', -1)", of, n)
		}
		number := func(of string) string { return "CAST(" + word(of) + " AS SIGNED)" }
		words = append(words, fmt.Sprintf("{word %d}", n), number("h.id"), fmt.Sprintf("{bid %d}", n), word("h.owner"), fmt.Sprintf("{number of bid %d}", n), number("h.owner"))
	}
	// ahead is how many permits are kept free for a Locker that has waited for longer. It takes the numbers of the
	// statement's arguments.
	ahead := func(locker, waited int) string {
		return fmt.Sprintf(owned+silent+"WHEN {bid 4} = '%%[%d]x' OR {number of bid 2} > {now} - %%[%d]d THEN 0 ELSE {number of bid 1} END", locker, waited)
	}
	head := func(n int) string { return fmt.Sprintf("CASE WHEN {live} THEN {word %d} ELSE 0 END", n) }
	return strings.NewReplacer(append(words,
		"{now}", now,
		// forget is rounded up to this, so that its index rarely changes.
		"{minute}", "60000000",
		"{granted}", fmt.Sprint(granted),
		"{manual}", fmt.Sprint(manual),
		"{refused}", fmt.Sprint(refused),
		"{differs}", fmt.Sprint(differs),
		"{own}", fmt.Sprint(own),
		"{bids}", fmt.Sprint(bids),
		"{locked}", fmt.Sprint(locked),
		"{block}", fmt.Sprint(block),
		"{keep}", fmt.Sprint(keep.Microseconds()),
		"{spare}", fmt.Sprint(spareKept.Microseconds()),
		"{signal}", fmt.Sprint(signalKept.Microseconds()),
		"{bid time}", fmt.Sprint(driver.BidTime.Microseconds()),
		"{most permits}", fmt.Sprint(driver.MaxPermits),
		"{ends}", fmt.Sprint(mostEnded),
		"{of permits}", fmt.Sprintf("LEFT(h.id, %d) = x'%x'", len(permitsWord), permitsWord),
		"{live}", "({of permits} AND h.expires > {now})",
		"{as lock}", "((NOT {of permits}) AND h.id <> x'' AND h.expires > {now})",
		"{limited}", head(2), "{used}", head(3), "{earlier}", head(4),
		"{ahead 13 11}", ahead(13, 11), "{ahead 9 7}", ahead(9, 7),
		"{bid left}", owned+silent+"ELSE {number of bid 3} + {bid time} - {now} END",
		"{grants}", "(v.own OR v.fresh)",
		"{writes}", "(v.own OR v.fresh OR NOT v.fits AND (v.bids OR v.differs))", // what fits, and is not granted, has a row that is another claim's
		"{id of permits}", fmt.Sprintf("LEFT(id, %d) = x'%x'", len(permitsWord), permitsWord),
	)...)
}()

// isNoName reports whether the server takes r in no name.
func isNoName(r rune) bool { return r == 0 || r > 0xffff }
