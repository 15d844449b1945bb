package httpfence_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"
	"strings"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/httpfence"
	"github.com/distlock/locker/fence/sqlfence"
	"github.com/distlock/locker/strategy/memory"
)

// The client sends the token of the lease with each request that it makes under the lock.
func ExampleTransport() {
	l, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: &httpfence.Transport{Key: httpfence.Path}}
	err = locker.Do(context.Background(), l, "/stock/lamp", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://shop.example/stock/lamp", strings.NewReader(`{"units": 9}`))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return httpfence.Refused(resp) // matches fence.ErrStale if a later owner was here
	})
	if err != nil {
		log.Print(err)
	}
}

// A service that cannot compare in the step that writes checks before it.
func ExampleHandler() {
	put := func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }
	http.Handle("PUT /stock/{id}", httpfence.Handler(fence.NewMemory(), httpfence.Path, http.HandlerFunc(put)))
}

// A service with a database checks in the transaction of the write.
func ExampleToken() {
	var db *sql.DB
	fences, err := sqlfence.New(sqlfence.PostgreSQL, "")
	if err != nil {
		log.Fatal(err)
	}
	put := func(r *http.Request) error {
		token, err := httpfence.Token(r)
		if err != nil {
			return err
		}
		tx, err := db.BeginTx(r.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := fences.AdmitTx(r.Context(), tx, r.URL.Path, token); err != nil {
			return err
		}
		if _, err := tx.ExecContext(r.Context(), `UPDATE stock SET units = 9 WHERE id = $1`, r.PathValue("id")); err != nil {
			return err
		}
		return tx.Commit()
	}
	http.HandleFunc("PUT /stock/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := put(r); err != nil {
			httpfence.Error(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
