package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"
)

// shopEnv makes this program a shop; its value is a shopConfig.
const shopEnv = "FLASHSALE_SHOP"

type shopConfig struct {
	Method string
	Config string   // path of the Locker's configuration, if there is one
	Redis  []string // URLs
	Prefix string   // of every key of this sale
}

// waitHeader carries how long the shop waited for the lock.
const waitHeader = "Lock-Wait"

// shopMain is the main function of a shop process.
func shopMain(cfg string) int {
	// Ctrl-C reaches the whole process group. The parent decides what it means:
	// it closes our stdin, and should it die the system does.
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		time.AfterFunc(10*time.Second, func() { os.Exit(exitFailed) })
		cancel()
	}()
	if err := serve(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "flashsale: shop:", err)
		return exitFailed
	}
	return exitOK
}

// serve sells until ctx ends. It prints the shop's URL once it is open.
func serve(ctx context.Context, cfgJSON string) error {
	var cfg shopConfig
	if err := json.Unmarshal([]byte(cfgJSON), &cfg); err != nil {
		return err
	}
	m, err := find(cfg.Method)
	if err != nil {
		return err
	}
	m.config = cfg.Config
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
	fmt.Printf("http://%s\n", l.Addr())
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
