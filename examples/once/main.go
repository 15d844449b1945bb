// Once is a shop with an order form that may be clicked twice.
//
//	go run .                                            # and open http://localhost:8080
//	go run . -url blpop+redis://localhost:6379          # locks that processes share
//	go run . -without                                   # see two orders
//
// A form has a key of its own, in a hidden field. Both buttons of the page send the same form: the second one
// stands for the second click, or for a browser that sends the form again. Each answer is shown in a frame. The
// order is placed once, and both frames show it; see shop.go for the handler, which knows nothing of that.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/strategy"
)

func main() { cli.Main("once", run) }

func run(ctx context.Context, p *cli.Program) error {
	url := p.String("url", "memory://once", "where the locks are, as for strategy.OpenURL")
	addr := p.String("listen", "localhost:8080", "the `address` to serve at")
	takes := p.Duration("takes", time.Second, "how long it takes to place an order")
	without := p.Bool("without", false, "place an order for each click")
	if err := p.Parse(); err != nil {
		return err
	}
	l, release, err := strategy.OpenURL(ctx, *url)
	if err != nil {
		return err
	}
	defer release()
	s := &shop{takes: *takes}
	routes, err := s.routes(l, !*without)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Stdout, "open http://%s and click twice; Ctrl-C ends it\n", listener.Addr())
	return serve(ctx, listener, routes)
}

// serve serves until ctx ends.
func serve(ctx context.Context, listener net.Listener, routes http.Handler) error {
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return context.Cause(ctx)
}
