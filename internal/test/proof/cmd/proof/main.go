// Command proof runs targets of the Makefile, and records each run in a file. The exit code is 1 if a target failed.
//
//	go run ./internal/test/proof/cmd/proof -record conformance/testdata/proof.json conformance faults
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/distlock/locker/internal/test/proof"
)

func main() {
	file := flag.String("record", "", "the file of the runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := proof.Record(ctx, *file, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}
