package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/distlock/locker"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
)

// answers are hints by what a server's answer contains. Where the server has answered, the
// network is well.
var answers = []struct{ part, hint string }{
	{"WRONGPASS", wrongUser},
	{"NOAUTH", wrongUser},
	{"invalid password", wrongUser},
	{"AUTH <password>", "the server has no password, but the URL does"},
	{"NOPERM", `the user's ACL lacks a right: see "Permissions" in docs/strategies.md`},
	{"DB index is out of range", "the server does not have the database whose number the URL names"},
	{"all sentinels specified in configuration are unreachable: redis: nil", "the Sentinels answer, but know no master of the name that master_name gives"},
	{"cluster support disabled", "the server is of no cluster: its scheme is redis or rediss, without -cluster"},
	{"MOVED", "the server is of a cluster: its scheme is redis-cluster or rediss-cluster"},
	{"unknown command", "is it a Redis server, and no Sentinel? Sentinels take redis-sentinel instead of redis"},
}

const wrongUser = "the server refuses the URL's user name and password, or wants some: setnx+redis://user:password@host:6379"

// hint returns advice for a store that cannot be used; "" if its own words suffice.
func (f *storeFlags) hint(err error) string {
	if f.store != "" && f.store != "redis" {
		return f.otherHint(err)
	}
	var answer redis.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &answer):
		for _, a := range answers {
			if strings.Contains(err.Error(), a.part) {
				return a.hint
			}
		}
		return ""
	case errors.As(err, &certificate):
		return "the parameter tls_ca_file of the URL names the file with the authority's certificate"
	case f.tls:
		return "is the server up, and does it speak TLS on this port? for a port without TLS write redis instead of rediss in the URL"
	}
	return "is the server up, and its address right? a port that speaks TLS takes rediss instead of redis"
}

// others are hints by what is in an error of a store that is not Redis: the code of PostgreSQL, the number of MySQL.
var others = map[string][]struct{ part, hint string }{
	"postgres": {
		{"SQLSTATE 28P01", userRefused}, {"SQLSTATE 28000", userRefused},
		{"SQLSTATE 3D000", "the server does not have the database that the URL names: postgres://user:password@host/database"},
		{"SQLSTATE 42501", `the user lacks a right: see "Table" in strategy/postgres/doc.go`},
		{"SQLSTATE 42P01", "the table is missing and the user may not make it: name another table by the parameter table of the URL"},
		{"refused TLS", "the server speaks no TLS: the URL takes sslmode=disable"},
	},
	"mysql": {
		{"Error 1045", userRefused}, {"Error 1698", userRefused},
		{"Error 1049", "the server does not have the database that the URL names: mysql://user:password@host/database"},
		{"Error 1044", "the user may not use the database that the URL names"},
		{"Error 1142", `the user lacks a right: see "Table" in strategy/mysql/doc.go`},
	},
	"etcd": {
		{"authentication failed", userRefused}, {"user name is empty", userRefused},
		{"permission denied", "the user's role lacks a right on the keys of locks"},
	},
}

const userRefused = "the server refuses the URL's user name and password, or wants some"

// ports are those that servers have by default.
var ports = map[string]int{"postgres": 5432, "mysql": 3306, "etcd": 2379}

func (f *storeFlags) otherHint(err error) string {
	for _, o := range others[f.store] {
		if strings.Contains(err.Error(), o.part) {
			return o.hint
		}
	}
	if _, answered := errors.AsType[*pgconn.PgError](err); answered {
		return ""
	}
	if _, answered := errors.AsType[*mysql.MySQLError](err); answered {
		return ""
	}
	return fmt.Sprintf("is the server up, and its address right? the port is %d unless the URL names another one", ports[f.store])
}

// hinted is err with what may help.
func (f *storeFlags) hinted(err error) error {
	if hint := f.hint(err); hint != "" && errors.Is(err, locker.ErrUnavailable) {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// explained is err with what may help, as a part of a line.
func (f *storeFlags) explained(err error) string { return plain(f.hinted(err)) }

// plain is err without the name of this program, which lines begin with.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "locker: ") }
