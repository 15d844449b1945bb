// Package register adds strategy mysql to package strategy. Import it for its effect:
//
//	import _ "github.com/distlock/locker/strategy/mysql/register"
//
//	l, release, err := strategy.OpenURL(ctx, "mysql://app:secret@db:3306/app?ttl=10s&table=app.locks")
//
// The scheme is mysql or mariadb, the port 3306 by default, and the path the database. Besides the
// parameters of package strategy there are
//
//	table=app.locks           see mysql.WithTable; default locker_locks
//	max_conns=16              the most connections to the server, 2 to 1000; this is the default
//	socket=/run/mysqld.sock   a socket instead of a host
//	tls=true                  or skip-verify, preferred, false: as in go-sql-driver/mysql
//	tls_ca_file=  tls_cert_file=  tls_key_file=  tls_server_name=
//	                          files in PEM, which mean tls=true; the name is the host's by default
//
// and those of go-sql-driver/mysql about connections: timeout (of connecting, 5s by default), readTimeout, writeTimeout,
// collation, charset, compress, maxAllowedPacket, serverPubKey, connectionAttributes, and the allow... ones.
//
// It is a package of its own as package strategy links the client for Redis, too.
package register

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	lockmysql "github.com/distlock/locker/strategy/mysql"
	"github.com/go-sql-driver/mysql"
)

func init() {
	for _, name := range []string{"mysql", "mariadb"} {
		if err := strategy.Register(name, strategy.Opener{Other: open}); err != nil {
			panic(err) // two of this name
		}
	}
}

func open(_ context.Context, u *url.URL, opts ...locker.Option) (*locker.Client, func(), error) {
	if scheme := u.Scheme[strings.LastIndexByte(u.Scheme, '+')+1:]; scheme != "mysql" && scheme != "mariadb" {
		return nil, nil, invalid("url: the strategy mysql takes mysql:// or mariadb://, not %s://", u.Scheme)
	}
	params := u.Query()
	take := func(name string) string {
		value := params.Get(name)
		params.Del(name)
		return value
	}
	table, conns := take("table"), 16
	if n := take("max_conns"); n != "" {
		var err error
		if conns, err = strconv.Atoi(n); err != nil || conns < 2 || conns > 1000 {
			return nil, nil, invalid("max_conns %q: want 2 to 1000", n)
		}
	}
	if table != "" {
		opts = append([]locker.Option{lockmysql.WithTable(table)}, opts...)
	}
	cfg, err := config(u, take, params)
	if err != nil {
		return nil, nil, err
	}
	if cfg.DBName == "" && !strings.Contains(table, ".") {
		return nil, nil, invalid("url: want a database, as in mysql://user@host/database")
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, nil, invalid("url: %v", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(time.Minute)
	l, err := lockmysql.New(db, opts...)
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return l, func() { _ = db.Close() }, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("locker: %w: config %w", locker.ErrInvalid, fmt.Errorf(format, args...))
}

// config makes the client's configuration of u; params are those that are left for it.
func config(u *url.URL, take func(string) string, params url.Values) (*mysql.Config, error) {
	address, err := addressOf(u, take("socket"))
	if err != nil {
		return nil, err
	}
	secured, err := tlsConfig(u, take)
	if err != nil {
		return nil, err
	}
	if !params.Has("timeout") {
		params.Set("timeout", "5s")
	}
	cfg, err := mysql.ParseDSN(address + "/?" + params.Encode())
	for name, values := range params {
		if _, wrong := mysql.ParseDSN(address + "/?" + url.Values{name: values}.Encode()); wrong != nil {
			return nil, invalid("%s: %v", name, wrong)
		}
	}
	if err != nil {
		return nil, invalid("url: %v", err)
	}
	if len(cfg.Params) > 0 { // they would be settings of the sessions
		return nil, invalid("url: unknown parameter %s", strings.Join(slices.Sorted(maps.Keys(cfg.Params)), ", "))
	}
	cfg.User, cfg.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	cfg.Logger = &mysql.NopLogger{} // what it logs are errors that commands return, too
	if secured != nil {
		cfg.TLS = secured
	}
	return cfg, nil
}

// addressOf returns where the server is, as a DSN of go-sql-driver/mysql names it.
func addressOf(u *url.URL, socket string) (string, error) {
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	n, _ := strconv.Atoi(port)
	switch {
	case socket != "" && u.Host != "":
		return "", invalid("url: want a host or a socket, got both")
	case socket != "":
		return "unix(" + socket + ")", nil
	case u.Hostname() == "":
		return "", invalid("url: want a host, as in mysql://user@host/database, or a socket")
	case n < 1 || n > 65535 || strings.ContainsAny(u.Hostname(), ", "):
		return "", invalid("url: want one host with a port of 1 to 65535, got %q", u.Host)
	}
	return "tcp(" + net.JoinHostPort(u.Hostname(), port) + ")", nil
}

// tlsConfig returns nil if no file or name is given.
func tlsConfig(u *url.URL, take func(string) string) (*tls.Config, error) {
	ca, cert, key, name := take("tls_ca_file"), take("tls_cert_file"), take("tls_key_file"), take("tls_server_name")
	if ca == "" && cert == "" && key == "" && name == "" {
		return nil, nil
	}
	if mode := take("tls"); mode != "" && mode != "true" {
		return nil, invalid("url: tls_... parameters mean tls=true, got tls=%s", mode)
	}
	cfg := &tls.Config{ServerName: name}
	if name == "" {
		cfg.ServerName = u.Hostname()
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, invalid("tls_ca_file: %w", err)
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("tls_ca_file %q: want certificates in PEM", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, invalid("tls_cert_file and tls_key_file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
