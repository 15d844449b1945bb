//go:build unix

// Command suite runs cases of the conformance suite on other lock libraries on Redis, each behind a thin driver, and
// writes what happened into docs/peers-suite.md. The cases are about exclusion, about locks that are lost, and about
// commands and replies that are lost and repeated.
//
//	go run ./suite               # everything, as text
//	go run ./suite -only redsync
//	make report                  # everything, into docs/peers-suite.md
package main

import (
	"os"

	"github.com/distlock/locker/internal/test/peersuite"
	"github.com/distlock/locker/internal/test/report"
)

func main() { os.Exit(redisSuite().Main()) }

func redisSuite() peersuite.Suite {
	return peersuite.Suite{
		Store: "Redis", Command: "go -C benchmarks run ./suite", Server: report.RedisVersion,
		Cases: "^(exclusion|lease|ownership|failure)/", Libraries: libraries,
	}
}
