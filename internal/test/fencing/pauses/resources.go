//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/httpfence"
	"github.com/distlock/locker/fence/redisfence"
	"github.com/distlock/locker/fence/sqlfence"
)

// stores are in the order of the table.
var stores = []string{"PostgreSQL", "MariaDB", "Redis", "HTTP"}

func resourceName(store string, checks bool) string {
	if checks {
		return store + ", checked"
	}
	return store
}

// addresses say where the stores are.
type addresses struct {
	Postgres, MariaDB [2]string // driver and DSN
	Redis, HTTP       string
}

// resource is a store with a check of tokens or without.
type resource struct {
	name   string
	put    func(ctx context.Context, key string, token int64, value string) error
	get    func(ctx context.Context, key string) (string, error)
	create func(context.Context) error // nil if there is nothing to be created
}

// open returns the resources, two for each store, and a func that closes them.
func (a addresses) open() (all []resource, closeAll func(), err error) {
	var closers []func() error
	closeAll = func() {
		for _, c := range closers {
			_ = c()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	for _, s := range []struct {
		store   string
		at      [2]string
		dialect sqlfence.Dialect
		replace string
	}{
		{"PostgreSQL", a.Postgres, sqlfence.PostgreSQL, `ON CONFLICT (name) DO UPDATE SET value = excluded.value`},
		{"MariaDB", a.MariaDB, sqlfence.MySQL, `ON DUPLICATE KEY UPDATE value = VALUES(value)`},
	} {
		db, err := sql.Open(s.at[0], s.at[1])
		if err != nil {
			return nil, nil, err
		}
		closers = append(closers, db.Close)
		fences, err := sqlfence.New(s.dialect, "")
		if err != nil {
			return nil, nil, err
		}
		for _, t := range []tables{{db, fences, "checked", s.replace}, {db, nil, "unchecked", s.replace}} {
			all = append(all, resource{resourceName(s.store, t.fences != nil), t.put, t.get, t.create})
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: a.Redis})
	closers = append(closers, rdb.Close)
	guard, err := redisfence.New(rdb)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range []values{{rdb, guard, "checked:"}, {rdb, nil, "unchecked:"}} {
		all = append(all, resource{resourceName("Redis", v.guard != nil), v.put, v.get, nil})
	}
	for path, checks := range map[string]bool{"/checked/": true, "/unchecked/": false} {
		s := remote{a.HTTP + path}
		all = append(all, resource{resourceName("HTTP", checks), s.put, s.get, nil})
	}
	return all, closeAll, nil
}

// tables are a table of data, and that of its guard if it has one.
type tables struct {
	db      *sql.DB
	fences  *sqlfence.Table
	data    string
	replace string // the end of an INSERT whose row may be there
}

func (t tables) create(ctx context.Context) error {
	statements := []string{`CREATE TABLE ` + t.data + ` (name varchar(100) PRIMARY KEY, value varchar(100))`}
	if t.fences != nil {
		statements = append(statements, t.fences.Schema())
	}
	for _, s := range statements {
		if _, err := t.db.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// put replaces the row, in the transaction that admits the token.
func (t tables) put(ctx context.Context, key string, token int64, value string) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if t.fences != nil {
		if err := t.fences.AdmitTx(ctx, tx, key, token); err != nil {
			return err
		}
	}
	// Keys and values are this program's own: letters, digits and slashes.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO %s VALUES ('%s', '%s') %s`, t.data, key, value, t.replace)); err != nil {
		return err
	}
	return tx.Commit()
}

func (t tables) get(ctx context.Context, key string) (value string, err error) {
	err = t.db.QueryRowContext(ctx, fmt.Sprintf(`SELECT value FROM %s WHERE name = '%s'`, t.data, key)).Scan(&value)
	return value, err
}

// values are strings in Redis, with a guard or without.
type values struct {
	rdb    *redis.Client
	guard  *redisfence.Guard
	prefix string
}

func (v values) put(ctx context.Context, key string, token int64, value string) error {
	if v.guard == nil {
		return v.rdb.Set(ctx, v.prefix+key, value, 0).Err()
	}
	return v.guard.Set(ctx, v.prefix+key, token, value, 0)
}

func (v values) get(ctx context.Context, key string) (string, error) {
	return v.rdb.Get(ctx, v.prefix+key).Result()
}

// service keeps values by paths; those below /checked/ are written only with a token that is
// admitted.
func service() http.Handler {
	var values sync.Map
	put := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		values.Store(r.URL.Path, string(body))
	})
	mux := http.NewServeMux()
	mux.Handle("PUT /checked/", httpfence.Handler(fence.NewMemory(), httpfence.Path, put))
	mux.Handle("PUT /unchecked/", put)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		value, _ := values.Load(r.URL.Path)
		fmt.Fprint(w, value)
	})
	return mux
}

// remote is the service as its clients see it.
type remote struct{ url string }

// put sends the token itself: a httpfence.Transport looks at the lease once more, and this
// is about a process that is paused after the last look.
func (s remote) put(ctx context.Context, key string, token int64, value string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.url+key, strings.NewReader(value))
	if err != nil {
		return err
	}
	req.Header.Set(httpfence.Header, strconv.FormatInt(token, 10))
	_, err = s.do(req)
	return err
}

func (s remote) get(ctx context.Context, key string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+key, nil)
	if err != nil {
		return "", err
	}
	return s.do(req)
}

func (s remote) do(req *http.Request) (string, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch refused := httpfence.Refused(resp); {
	case refused != nil || err != nil:
		return "", errors.Join(refused, err)
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), nil
}
