// Package register adds strategy postgres to package strategy. Import it for its effect:
//
//	import _ "github.com/distlock/locker/strategy/postgres/register"
//
//	l, release, err := strategy.OpenURL(ctx, "postgres://app:secret@db/app?ttl=10s&table=app.locks")
//
// A URL is one as pgxpool takes it, postgres:// or postgresql://, with parameters for the
// server's connection and pool_max_conns and the like for the pool; several hosts are
// parameters, as in postgres:///app?host=a,b. Besides those of package strategy there are
//
//	table=app.locks   see postgres.WithTable
//	notify=off        see postgres.WithoutNotify
//
// A strategy: postgres without a URL connects as PGHOST and the other variables of libpq say.
//
// It is a package of its own as package strategy links the client for Redis, too.
package register

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/postgres"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func init() {
	for _, name := range []string{"postgres", "postgresql"} {
		if err := strategy.Register(name, strategy.Opener{Other: open}); err != nil {
			panic(err) // two of this name
		}
	}
}

func open(ctx context.Context, u *url.URL, opts ...locker.Option) (*locker.Client, func(), error) {
	server, params := *u, u.Query()
	if name := params.Get("table"); name != "" {
		opts = append([]locker.Option{postgres.WithTable(name)}, opts...)
	}
	switch notify := params.Get("notify"); notify {
	case "", "on", "true":
	case "off", "false":
		opts = append([]locker.Option{postgres.WithoutNotify()}, opts...)
	default:
		return nil, nil, fmt.Errorf("locker: %w: config notify %q: on or off", locker.ErrInvalid, notify)
	}
	params.Del("table")
	params.Del("notify")
	server.RawQuery = params.Encode()
	if server.Host == "" && server.Path == "" {
		server.Path = "/" // or it would be no URL with //
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" && !strings.HasSuffix(u.Scheme, "+postgres") && !strings.HasSuffix(u.Scheme, "+postgresql") {
		return nil, nil, fmt.Errorf("locker: %w: config url: the strategy postgres takes postgres:// or postgresql://, not %s://", locker.ErrInvalid, u.Scheme)
	}
	cfg, err := pgxpool.ParseConfig(server.String())
	if err != nil {
		return nil, nil, fmt.Errorf("locker: %w: config url: %s", locker.ErrInvalid, wordsOf(err))
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	l, err := postgres.New(pool, opts...)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return l, pool.Close, nil
}

// wordsOf returns the words of pgx's error without the URL, which may have a password.
func wordsOf(err error) string {
	wrong, address := (*pgconn.ParseConfigError)(nil), (*url.Error)(nil)
	switch {
	case errors.As(err, &address):
		return address.Err.Error()
	case errors.As(err, &wrong):
		bare := *wrong
		bare.ConnString = ""
		return strings.TrimPrefix(bare.Error(), "cannot parse ``: ")
	}
	return err.Error()
}
