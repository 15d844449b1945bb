package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kind is a product, and how its tests are run.
type kind struct {
	product  string
	says     *regexp.Regexp // what its program prints when it is asked for its version; the first group is the version
	module   string         // where the tests are
	packages []string
	env      func(program string) []string // has the tests take the program
}

var (
	redisPackages = []string{
		"./strategy/setnx", "./strategy/hashreentrant", "./strategy/blpop", "./strategy/redlock",
		"./internal/test/strategies", "./internal/redisconn", "./internal/redispubsub", "./internal/redisdriver", "./fence/redisfence",
	}
	named = func(variable string) func(string) []string {
		return func(program string) []string { return []string{variable + "=" + program} }
	}
	// firstInPath puts the program's directory first: postgres needs initdb, and initdb postgres.
	firstInPath = func(program string) []string {
		return []string{"PATH=" + filepath.Dir(program) + string(os.PathListSeparator) + os.Getenv("PATH")}
	}
	everything = []string{"./..."}
)

// kinds lists what identify knows; the first that fits counts.
var kinds = []kind{
	{"KeyDB", regexp.MustCompile(`^KeyDB server v=([\d.]+)`), ".", redisPackages, named("LOCKER_REDIS_SERVER")},
	{"Redict", regexp.MustCompile(`^Redict server v=([\d.]+)`), ".", redisPackages, named("LOCKER_REDIS_SERVER")},
	{"Valkey", regexp.MustCompile(`^(?:Valkey server|Server) v=([\d.]+)`), ".", redisPackages, named("LOCKER_REDIS_SERVER")}, // 7.2 does not print its name
	{"Redis", regexp.MustCompile(`^Redis server v=([\d.]+)`), ".", redisPackages, named("LOCKER_REDIS_SERVER")},
	{"PostgreSQL", regexp.MustCompile(`^postgres \(PostgreSQL\) ([\d.]+)`), "strategy/postgres", everything, firstInPath},
	{"MariaDB", regexp.MustCompile(`Ver ([\d.]+)-MariaDB`), "strategy/mysql", everything, named("LOCKER_MYSQL_SERVER")},
	{"MySQL", regexp.MustCompile(`Ver ([\d.]+)\S* for `), "strategy/mysql", everything, named("LOCKER_MYSQL_SERVER")},
	{"etcd", regexp.MustCompile(`^etcd Version: ([\d.]+)`), "strategy/etcd", everything, named("LOCKER_ETCD_SERVER")},
}

// server is a program that is tested.
type server struct {
	kind             kind
	program, version string
}

// identify asks a program what it is.
func identify(ctx context.Context, program string) (server, error) {
	program, err := filepath.Abs(program)
	if err != nil {
		return server{}, err
	}
	said, err := output(ctx, program, "--version")
	if err != nil {
		return server{}, err
	}
	for _, k := range kinds {
		if m := k.says.FindStringSubmatch(said); m != nil {
			return server{k, program, m[1]}, nil
		}
	}
	return server{}, fmt.Errorf("%s --version printed %q: want a server of %s", program, said, strings.Join(products(), ", "))
}

func products() (all []string) {
	for _, k := range kinds {
		all = append(all, k.product)
	}
	slices.Sort(all)
	return all
}
