package mysql

import (
	"context"
	"crypto/tls"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"slices"

	"github.com/distlock/locker/driver"
	"github.com/go-sql-driver/mysql"
)

// Numbers of the server's errors.
const (
	commandDenied   = 1142
	noSuchTable     = 1146
	lockWaitTimeout = 1205
	duplicate       = 1062
)

var (
	// rolledBack are a deadlock; a row that has changed since the transaction's snapshot, which MariaDB from 11.6 on refuses at
	// REPEATABLE READ and above (innodb_snapshot_isolation); and a transaction that Group Replication refuses at its commit, as another
	// server has changed the row (3101).
	rolledBack = []uint16{1213, 1020, 3101}
	// readOnly: read_only or super_read_only is on, InnoDB was started read-only, the session
	// or its transaction is, or a node of Galera is in no majority (1047).
	readOnly = []uint16{1290, 1836, 1792, 1047}
	// tooMany connections: of the server, of the user, by the user's limits, from this host.
	tooMany = []uint16{1040, 1203, 1226, 1129}
	// permanent errors need a person: access denied (1044, 1045, 1142, 1143, 1227, 1698), a
	// password that expired or an account that is locked (1820, 1862, 3118, 4151), no database
	// (1046, 1049), no table or another one of that name (1054, 1146, 1364, 1406), a server that
	// does not know the SQL (1064, 1235) or a setting (1193) or cannot log it (1665), no space (1021, 1114).
	permanent = []uint16{1044, 1045, commandDenied, 1143, 1227, 1698, 1820, 1862, 3118, 4151, 1046, 1049, 1054, noSuchTable, 1364, 1406, 1064, 1235, 1193, 1665, 1021, 1114}
	// clientSide are errors of go-sql-driver that end each attempt to connect alike.
	clientSide = []error{mysql.ErrNoTLS, mysql.ErrCleartextPassword, mysql.ErrNativePassword, mysql.ErrOldPassword,
		mysql.ErrUnknownPlugin, mysql.ErrOldProtocol}
)

func hasNumber(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// exec runs a statement. One that the server rolled back was not applied, and is sent again.
func exec(ctx context.Context, conn *sql.Conn, stmt string) (sql.Result, error) {
	done, err := conn.ExecContext(ctx, stmt)
	for try := 1; hasNumber(err, rolledBack...) && try < mostTries && ctx.Err() == nil; try++ {
		done, err = conn.ExecContext(ctx, stmt)
	}
	return done, err
}

// send runs a statement that changes claims, and returns its LAST_INSERT_ID, and how many rows it has changed. Without
// autocommit the change may be undone later: send undoes it, with the connection.
func send(ctx context.Context, conn *sql.Conn, stmt string) (id, changed int64, err error) {
	done, err := exec(ctx, conn, stmt)
	if err != nil {
		return 0, 0, err
	}
	if id, err = done.LastInsertId(); id == manual && err == nil {
		hangUp(conn)
		return 0, 0, errManual
	}
	if err == nil {
		changed, err = done.RowsAffected()
	}
	return id, changed, err
}

// isPermanent reports whether trying again is pointless.
func isPermanent(err error) bool {
	var untrusted *tls.CertificateVerificationError
	// database/sql does not export the error of a closed pool.
	return hasNumber(err, permanent...) || errors.As(err, &untrusted) || err.Error() == "sql: database is closed" ||
		slices.ContainsFunc(clientSide, func(e error) bool { return errors.Is(err, e) })
}

// storeError classifies the error of a command. Of these errors of the server each is known to
// have undone the statement, or come before it; another one may be that of its COMMIT. A bad connection is one
// that took nothing of the statement.
func storeError(err error, notSent bool) error {
	var refined *driver.StoreError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refined), errors.Is(err, driver.ErrLost), errors.Is(err, driver.ErrInvalid):
		return err
	}
	undone := hasNumber(err, lockWaitTimeout, duplicate) || hasNumber(err, rolledBack...) || hasNumber(err, readOnly...) || hasNumber(err, tooMany...) || hasNumber(err, permanent...)
	return &driver.StoreError{Err: err, Permanent: isPermanent(err), NotApplied: notSent || undone || errors.Is(err, sqldriver.ErrBadConn)}
}
