//go:build unix

// Command report brings faults about for the strategies on Redis and for other lock libraries, on real
// servers and with real processes, and writes what happened into docs/report.md.
//
//	go run ./report                                    # everything, as text
//	go run ./report -case partition -only setnx,redsync
//	make report                                        # everything, into docs/report.md
package main

import (
	"os"

	"github.com/distlock/locker/internal/test/report"
)

func main() { os.Exit(redisReport().Main()) }

func redisReport() report.Report {
	return report.Report{
		Store: "Redis", Dir: "benchmarks", Program: "./report", Server: report.RedisVersion,
		Subjects: subjects, Cases: redisCases(),
	}
}
