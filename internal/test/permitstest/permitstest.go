// Package permitstest tests permits in a store that keeps them in two tables of SQL: docs/decisions/0022-permits.md
// describes the heads and the claims.
package permitstest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// Kind describes a strategy, and how to read its tables.
type Kind struct {
	Name  string // of the strategy
	Start func(tb testing.TB, settings ...string) Store
	Dial  func(tb testing.TB, url string) driver.Driver

	Keys, Claims string                       // the tables
	Key          string                       // the column of Keys that has the key as the caller names it
	Is           func(id string) string       // the condition that a row of Claims is that of the id, by an index
	After        func(d time.Duration) string // the time d from now
	Text         func(column string) string   // bytes as a text
	Word         func(text string, n int) string
	Fill         string   // gives key "k" some 10,000 claims more, like that of IDOf(1)
	Levels       []string // settings of a server with another isolation level each; "" for the default
	EndsFollow   bool     // no claim ends later than its head at any time
	Still        []string // settings of a server that reads no rows by itself

	WithTable func(name string) locker.Option
	Names     []string // of tables, some as long as the server takes them
	Count     string   // the number of tables of permits
	Missing   []string // words of the error where the table of permits is missing

	First   [3]int // statements: for the first permit of a key, for a second one beside it, and for one after a release
	Refused [2]int // statements: for a request that is refused, and for one after it
	Sweeps  bool   // some releases send statements that delete old rows
}

// Store is a server of its own.
type Store interface {
	URL() string
	// Driver makes a driver with a pool of n connections; 0: as many as the pool likes.
	Driver(tb testing.TB, n int) driver.Driver
	// Counted is Driver, and returns the number of its statements so far.
	Counted(tb testing.TB, n int) (d driver.Driver, statements func() int)
	// Reads returns how many rows of tables and entries of indexes the commands of f read.
	Reads(t *testing.T, f func(driver.Driver)) float64
	// Weak makes a driver whose user cannot create tables, in a database without the table of permits. permits
	// makes the table for that user.
	Weak(t *testing.T) (d driver.Driver, permits func())

	// These run SQL as the superuser.

	Admin(ctx context.Context, sql string) error
	Ask(ctx context.Context, value any, sql string) error
	// Lock runs a statement in a transaction, which goes on until end.
	Lock(t *testing.T, sql string) (end func())
	// Waiting returns how many statements wait for a row.
	Waiting(t *testing.T) int
	// Cut ends the connections of all drivers.
	Cut(ctx context.Context) error
	// CPU returns how long the server has worked.
	CPU() time.Duration
}

// test is one of the tests.
type test struct {
	*testing.T
	k Kind
}

// Run runs the tests, side by side.
func Run(t *testing.T, k Kind) {
	t.Helper()
	for name, f := range map[string]func(*test){
		"SentAgainCountOnce": sentAgainCountOnce, "WithoutFencing": withoutFencing, "LockComesBehindTheLast": lockComesBehindTheLast, "AfterAWait": afterAWait,
		"RenewedIsNotForgotten": renewedIsNotForgotten, "Inspect": inspect, "NeedTheirTable": needTheirTable, "LongNames": longNames,
		"AddUp": addUp, "OfAKilledProcess": ofAKilledProcess,
		"OfTheDeadEnd": ofTheDeadEnd, "OfManyDeadAreFree": ofManyDeadAreFree, "HeadOutlastsItsClaims": headOutlastsItsClaims, "ErasEnd": erasEnd,
		"OldClaimsAreForgotten": oldClaimsAreForgotten, "BidEndsWithItsClaim": bidEndsWithItsClaim,
		"FreeOnesAreCheap": freeOnesAreCheap, "FirstOnesCost": firstOnesCost, "CostDoesNotGrow": costDoesNotGrow,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(&test{t, k})
		})
	}
}

// IDOf returns the id of a claim. Those of ofOther and ofThird are of other Lockers.
func IDOf(n int) string    { return fmt.Sprintf("00000000-0000-4000-8000-000000000000:%d", n) }
func ofOther(n int) string { return strings.Replace(IDOf(n), "0", "1", 1) }
func ofThird(n int) string { return strings.Replace(IDOf(n), "0", "2", 1) }

// claim returns a claim of n permits of limit, of key "k". Every other one says that it has a token: a driver may release it in
// another way.
func claim(id string, ttl time.Duration, n, limit int) driver.Claim {
	return driver.Claim{Key: "k", ID: id, Owner: id, TTL: ttl, Permits: n, Limit: limit, Token: int64(id[len(id)-1] % 2)}
}

func take(t *test, d driver.Driver, c driver.Claim) driver.Answer {
	t.Helper()
	return ask(t, d, driver.Request{Claim: c, Fencing: true})
}

// waits makes an attempt of a caller that has waited.
func waits(t *test, d driver.Driver, c driver.Claim, waited time.Duration) driver.Answer {
	t.Helper()
	return ask(t, d, driver.Request{Claim: c, Fencing: true, Waits: true, Waited: waited})
}

func ask(t *test, d driver.Driver, req driver.Request) driver.Answer {
	t.Helper()
	a, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	return a
}

func out(t *test, d driver.Driver) int {
	t.Helper()
	n, _, err := d.(driver.PermitKeeper).Permits(t.Context(), "k")
	require.NoError(t, err)
	return n
}

// open makes a Locker with the driver.
func open(t *test, d driver.Driver, opts ...locker.Option) *locker.Client {
	t.Helper()
	l, err := locker.New(d, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func semaphore(t *test, l *locker.Client, permits int) *locker.Semaphore {
	t.Helper()
	s, err := locker.NewSemaphore(l, "k", permits)
	require.NoError(t, err)
	return s
}

// untilWaits returns when n statements wait for a row, or have an answer.
func untilWaits[T any](t *test, s Store, n int, answers chan T) {
	t.Helper()
	pace.Eventually(t, 20*time.Second, "statements wait for a row", func() bool { return s.Waiting(t.T)+len(answers) == n })
}

func admin(t *test, s Store, sql string) {
	t.Helper()
	require.NoError(t, s.Admin(t.Context(), sql))
}
