// Flashsale sells one product through several shops at once, with and without
// locks, and counts what was sold beyond the stock.
//
//	go run ./examples/flashsale                      # all strategies in turn
//	go run ./examples/flashsale -strategy none,setnx
//	go run ./examples/flashsale -redis redis://localhost:6379/0
//	go run ./examples/flashsale -config examples/flashsale/blpop.yaml
//	go run ./examples/flashsale -strategy setnx -paused
//
// Every shop is a process of its own, serving HTTP. The stock is a number in
// Redis, and shops treat it as careless shops do: read it, take the payment,
// write it back less one. Buyers send their requests to shops picked at
// random. What the strategies do about it:
//
//	none           nothing: sales overwrite each other, the shops oversell
//	naive          what people write by hand, SETNX with a fixed expiry and DEL:
//	               oversells whenever a payment takes longer than the expiry
//	memory         one shop only, since its locks do not reach other processes
//	setnx, ...     the strategies of this module: stop at the last unit
//
// Start reading at sale/shop.go: a sale under a lock, whatever the strategy.
//
// With -config the shops' Locker is configured by the file (a strategy.Config, in YAML
// or JSON), wherever it says its Redis is; the stock stays where it is otherwise.
//
// With -paused one shop is stopped (SIGSTOP) past its lease, between its last look at it and its
// write, and goes on when another shop has sold. No lock stops its late write. Each sale is held once
// without a check of the fencing token, which oversells, and once with it, where the late write is
// refused. See sale/paused.go.
//
// Without -redis it starts servers of its own (miniredis; redlock needs five), so that
// nothing needs to be installed. They run scripts slowly: to compare how long strategies
// wait, give it a real Redis.
//
// Ctrl-C stops everything. The exit code is 0 when every real strategy sold
// exactly the stock, 1 when one did not, 2 for bad usage and 130 after Ctrl-C.
package main

import "github.com/distlock/locker/examples/flashsale/sale"

func main() { sale.Main() }
