package sale

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/child"
)

const shopKind = "flashsale shop"

type shopConfig struct {
	Method string
	Config string   // path of the Locker's configuration, if there is one
	Redis  []string // URLs
	Prefix string   // of every key of this sale
	Paused *pausing
}

// waitHeader carries how long the shop waited for the lock.
const waitHeader = "Lock-Wait"

// serve sells until the parent closes the input. It prints the shop's URL once it is open.
func serve(parent child.Parent, cfg shopConfig) error {
	ctx, stop := parent.Context()
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(10*time.Second, func() { os.Exit(cli.Failed) }) })
	m, err := find(cfg.Method)
	if err != nil {
		return err
	}
	m.config, m.paused = cfg.Config, cfg.Paused
	rdbs, hangUp, err := dial(cfg.Redis)
	if err != nil {
		return err
	}
	defer func() { _ = hangUp() }()
	shop, closeShop, err := m.shop(ctx, rdbs, cfg.Prefix)
	if err != nil {
		return err
	}
	defer closeShop()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /buy", counter(shop))
	srv := &http.Server{
		Handler:     mux,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	shut := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		shut <- srv.Shutdown(grace)
	})
	fmt.Fprintf(parent, "http://%s\n", l.Addr())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-shut
}

// counter is where buyers are served:
//
//	POST /buy?payment=7ms
//
// answers 201 for a unit sold and 410 for sold out.
func counter(s seller) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		came := time.Now()
		payment, err := time.ParseDuration(r.FormValue("payment"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		o := &order{payment: payment}
		err = s.sell(r.Context(), o)
		if !o.served.IsZero() {
			w.Header().Set(waitHeader, o.served.Sub(came).String())
		}
		switch {
		case err == nil:
			w.WriteHeader(http.StatusCreated)
		case err == errSoldOut: //nolint:errorlint // alone: nothing went wrong besides
			http.Error(w, err.Error(), http.StatusGone)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}
