package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

const (
	// keep is how long a row is kept after its lease, for its token; or two TTLs, if that
	// is longer.
	keep = 10 * time.Minute

	// These make one number of the answer to an attempt: see sql/acquire.sql.
	granted = 1 << 62
	manual  = 1 << 61
	block   = 1 << 53 // tokens are below

	// mostTries is how often an attempt is sent that the server rolls back.
	mostTries = 10
	// sweepEvery is how many releases, on average, there are to one that deletes old rows. It
	// deletes more of them than so many attempts can have made.
	sweepEvery = 16
	// unlimited is how many connections a Locker uses at most for attempts and for the rest, if
	// the pool has no limit.
	unlimited = 32
)

// New makes a Locker on db, which stays the caller's. It asks the server nothing yet. It goes by the
// pool's limit of connections at this time: at most half of them are used by attempts to take a lock.
func New(db *sql.DB, opts ...locker.Option) (*locker.Client, error) {
	if db == nil {
		return nil, fmt.Errorf("locker: %w: the *sql.DB is nil", driver.ErrInvalid)
	}
	return locker.New(NewDriver(db), opts...)
}

// WithTable names the table, with or without its database: "locks", "app.locks". All that
// share locks name the same one; without a database it is in that of the connection. A name is 1 to
// 64 characters without dots. Default "locker_locks".
func WithTable(name string) locker.Option { return locker.WithDriverOption(table(name)) }

// Schema returns the SQL that makes the table of a name as [WithTable] takes it. It is one statement,
// and does nothing to a table that exists.
func Schema(name string) (string, error) {
	sql, err := newStatements(name)
	return sql.schema, err
}

// PermitsSchema returns the SQL that makes the table of permits beside the table of that name, which has _permits behind its
// name. It is one statement, and does nothing to a table that exists.
func PermitsSchema(name string) (string, error) {
	sql, err := newStatements(name)
	return sql.permits.schema, err
}

type table string

// mysqlDriver is a driver.Driver, driver.Configurer, driver.Inspector, driver.PermitKeeper and driver.Signaller.
type mysqlDriver struct {
	db  *sql.DB
	sql statements
	// So many commands may be at the pool, which serves those that wait in any order: a
	// command waits in turn here, and releases and renewals are in no attempt's way.
	attempts, others chan struct{}
	listens          sync.WaitGroup
	rows             spares
	refusals         refusals
}

// NewDriver makes the driver that New gives to its Locker, for those who wrap it.
func NewDriver(db *sql.DB) driver.Driver {
	n := db.Stats().MaxOpenConnections
	if n <= 0 {
		n = unlimited
	}
	return &mysqlDriver{db: db, sql: ofDefault(), attempts: make(chan struct{}, (n+1)/2), others: make(chan struct{}, n)}
}

const defaultTable = "locker_locks"

// Name implements driver.Driver.
func (*mysqlDriver) Name() string { return "mysql" }

// Configure implements driver.Configurer.
func (d *mysqlDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	for _, opt := range cfg.Options {
		name, ok := opt.(table)
		if !ok {
			return driver.Settings{}, fmt.Errorf("%w: mysql has no option %T", driver.ErrInvalid, opt)
		}
		var err error
		if d.sql, err = newStatements(string(name)); err != nil {
			return driver.Settings{}, err
		}
	}
	return driver.Settings{}, nil
}

var (
	errLost = fmt.Errorf("the claim does not hold the key: %w", driver.ErrLost)
	errBusy = &driver.StoreError{Err: errors.New("the row is locked by another transaction"), NotApplied: true}
	// errManual: what the statement did is undone with the connection, which is closed.
	errManual = &driver.StoreError{Permanent: true, NotApplied: true, Err: errors.New("want connections with autocommit = 1, in which each statement is a transaction, and sql_safe_updates = 0")}
	errMute   = &driver.StoreError{Permanent: true, Err: errors.New("the server sent no answer: want connections with sql_safe_updates = 0, and a table without triggers")}
)

// Acquire implements driver.Driver.
func (d *mysqlDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if req.Limit > 0 {
		return d.acquirePermits(ctx, req)
	}
	var a driver.Answer
	err := d.do(ctx, d.attempts, func(conn *sql.Conn) (err error) {
		a, err = d.asking(ctx, conn, req).lock()
		return err
	})
	return a, err
}

// lock asks for the key as a lock.
func (r *asking) lock() (a driver.Answer, err error) {
	stmt := fmt.Sprintf(r.sql.acquire, r.hash, r.req.Key, r.req.ID, r.req.Owner, r.ttl(), forgetAfter(r.req.TTL), r.tokens)
	for range mostTries {
		n, err := r.send(stmt)
		switch {
		case err != nil:
			return a, err
		case n >= granted:
			return driver.Answer{Granted: true, Token: (n - granted) % block, Tokens: min(int((n-granted)/block), r.tokens)}, nil
		case n >= refused:
			if a, had, err := r.lockInstead(); had || err != nil {
				return a, err
			}
		case n > 0:
			a.Remaining = time.Duration(n) * time.Millisecond
			return a, nil
		default:
			return a, errMute
		}
	}
	return a, errOvertaken
}

// Renew implements driver.Driver: statements for locks, and others for permits. A lock that is alone waits for its row,
// which would hold up the others of a batch.
func (d *mysqlDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	if len(claims) == 1 && claims[0].Limit == 0 {
		answer(0, d.extend(ctx, claims[0]))
		return
	}
	var locks, permits []int
	for i, c := range claims {
		if c.Limit > 0 {
			permits = append(permits, i)
		} else {
			locks = append(locks, i)
		}
	}
	some := func(these []int, renew func(context.Context, []driver.Claim, func(int, error))) {
		if len(these) == 0 {
			return
		}
		of := make([]driver.Claim, len(these))
		for i, n := range these {
			of[i] = claims[n]
		}
		renew(ctx, of, func(i int, err error) { answer(these[i], err) })
	}
	some(locks, d.renewLocks)
	some(permits, d.renewPermits)
}

func (d *mysqlDriver) renewLocks(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	outcome := make([]error, len(claims))
	err := d.do(ctx, d.others, func(conn *sql.Conn) error { return d.renew(ctx, conn, claims, outcome) })
	for i := range claims {
		if err != nil {
			outcome[i] = err
		}
		answer(i, outcome[i])
	}
}

func (d *mysqlDriver) extend(ctx context.Context, c driver.Claim) error {
	return d.do(ctx, d.others, func(conn *sql.Conn) error {
		held, _, err := send(ctx, conn, fmt.Sprintf(d.sql.extend, hashOf(c.Key), c.ID))
		if err == nil && held == 0 {
			err = errLost
		}
		return err
	})
}

// renew renews a batch. If the server has changed fewer rows than there are claims, it asks which claims
// last for their TTL nevertheless: an earlier command may have renewed them.
func (d *mysqlDriver) renew(ctx context.Context, conn *sql.Conn, claims []driver.Claim, outcome []error) error {
	pairs := make([]string, len(claims))
	for i, c := range claims {
		pairs[i] = fmt.Sprintf("(hash = x'%x' AND id = x'%x')", hashOf(c.Key), c.ID)
	}
	these, sent := strings.Join(pairs, " OR "), time.Now()
	_, renewed, err := send(ctx, conn, fmt.Sprintf(d.sql.renew, these, len(claims)))
	if err != nil || renewed == int64(len(claims)) {
		return err
	}
	left := make(map[string]time.Duration)
	_, err = rows(ctx, conn, fmt.Sprintf(d.sql.held, these), func(scan scanner) error {
		var hash, id []byte
		var micros int64
		err := scan(&hash, &id, &micros)
		left[string(hash)+string(id)] = time.Duration(micros) * time.Microsecond
		return err
	})
	if err != nil {
		return err
	}
	took := time.Since(sent) + time.Millisecond // the two clocks may differ by a little meanwhile
	for i, c := range claims {
		lasts, held := left[string(hashOf(c.Key))+c.ID]
		switch {
		case !held:
			outcome[i] = errLost
		case lasts+took < c.TTL:
			outcome[i] = errBusy
		}
	}
	return nil
}

// Release implements driver.Driver.
func (d *mysqlDriver) Release(ctx context.Context, c driver.Claim) error {
	if c.Limit > 0 {
		return d.releasePermits(ctx, c)
	}
	return d.do(ctx, d.others, func(conn *sql.Conn) error {
		formats := []string{d.sql.release}
		if c.Token == 0 {
			formats = []string{d.sql.drop, d.sql.release}
		}
		for _, format := range formats {
			_, freed, err := send(ctx, conn, fmt.Sprintf(format, hashOf(c.Key), c.ID))
			if err != nil {
				return err
			}
			if freed > 0 {
				d.sweep(ctx, conn)
				return nil
			}
		}
		return errLost
	})
}

// sweep deletes old rows now and then. That some other process does it will do as well.
func (d *mysqlDriver) sweep(ctx context.Context, conn *sql.Conn) {
	if rand.IntN(sweepEvery) == 0 {
		_, _ = conn.ExecContext(ctx, d.sql.sweep)
	}
}

// Close implements driver.Driver. The pool is the caller's.
func (d *mysqlDriver) Close() error {
	d.listens.Wait()
	return nil
}

// do runs f on a connection of the pool, when it is this command's turn. Where the table is missing it
// makes it, and runs f, which did nothing, again.
func (d *mysqlDriver) do(ctx context.Context, turns chan struct{}, f func(*sql.Conn) error) error {
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-ctx.Done():
		return storeError(ctx.Err(), true)
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return storeError(err, true)
	}
	defer conn.Close()
	if err = f(conn); hasNumber(err, noSuchTable) {
		failed := d.create(ctx, conn)
		if err = f(conn); hasNumber(err, noSuchTable) && failed != nil {
			err = fmt.Errorf("the table %s does not exist and could not be created (%s): %w", d.sql.missing(err), failed.Error(), err)
		}
	}
	if hasNumber(err, noSuchTable, commandDenied) {
		err = fmt.Errorf("%w (the SQL of mysql.Schema makes the table %s, that of mysql.PermitsSchema %s; a Locker's user needs SELECT, INSERT, UPDATE and DELETE on them)", err, d.sql.table, d.sql.permits.table)
	}
	if hasNumber(err, readOnly...) {
		// It might stay open for ever, while the next ones reach the primary.
		hangUp(conn)
		err = fmt.Errorf("the server takes no writes (is it a replica since a fail-over? This connection is closed, and the next one may find the primary): %w", err)
	}
	return storeError(err, false)
}

// create makes both tables where they are missing.
func (d *mysqlDriver) create(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, d.sql.schema)
	if err == nil {
		_, err = conn.ExecContext(ctx, d.sql.permits.schema)
	}
	return err
}

// hangUp keeps conn from going back into the pool: it is closed.
func hangUp(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}

type scanner = func(...any) error

// rows runs a query and goes through its rows.
func rows(ctx context.Context, conn *sql.Conn, query string, row func(scan scanner) error) (n int, err error) {
	all, err := conn.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer all.Close()
	for ; all.Next(); n++ {
		if err := row(all.Scan); err != nil {
			return n, err
		}
	}
	return n, all.Err()
}

func hashOf(key string) []byte {
	hash := sha256.Sum256([]byte(key))
	return hash[:]
}
