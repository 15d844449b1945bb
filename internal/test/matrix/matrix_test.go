package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPage: docs/compatibility.md is what the results make of it.
func TestPage(t *testing.T) {
	want, err := render("results.json")
	require.NoError(t, err)
	have, err := os.ReadFile("../../../docs/compatibility.md")
	require.NoError(t, err)
	require.Equal(t, want, string(have), "docs/compatibility.md is stale: go run ./internal/test/matrix -docs docs")
}

func TestIdentify(t *testing.T) {
	for said, want := range map[string]string{
		"Redis server v=7.4.1 sha=00000000:1 malloc=libc bits=64 build=79772bbd90ba3158":                        "Redis 7.4.1",
		"Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.1 bits=64 build=9108e8f1788612b":              "Valkey 9.1.2",
		"Server v=7.2.7 sha=00000000:0 malloc=libc bits=64 build=b3e8b881512f43f3":                              "Valkey 7.2.7",
		"KeyDB server v=6.3.4 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=7e7e5e57d98ec":                 "KeyDB 6.3.4",
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)":                                                  "PostgreSQL 15.18",
		"mariadbd  Ver 11.8.9-MariaDB-0+deb13u1 from Debian for debian-linux-gnu on x86_64":                     "MariaDB 11.8.9",
		"/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))":                                          "MySQL 9.7.4",
		"/usr/sbin/mysqld  Ver 8.4.6 for Linux on x86_64 (MySQL Community Server - GPL)":                        "MySQL 8.4.6",
		"etcd Version: 3.5.16\nGit SHA: Not provided (use ./build instead of go build)\nGo Version: go1.24.4\n": "etcd 3.5.16",
	} {
		program := t.TempDir() + "/server"
		require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ncat <<'END'\n"+said+"\nEND\n"), 0o755))
		s, err := identify(t.Context(), program)
		require.NoError(t, err)
		require.Equal(t, want, s.kind.product+" "+s.version)
	}
	_, err := identify(t.Context(), "/bin/sh")
	require.Error(t, err)
}

// TestCount: tests without subtests count, a parent of one that failed does not, and a package that
// does not compile has failed.
func TestCount(t *testing.T) {
	r := count([]byte(strings.Join([]string{
		`{"Action":"pass","Package":"github.com/distlock/locker/a","Test":"TestA"}`,
		`{"Action":"output","Package":"github.com/distlock/locker/a","Test":"TestB/parallel/group/Case","Output":"why"}`,
		`{"Action":"fail","Package":"github.com/distlock/locker/a","Test":"TestB/parallel/group/Case"}`,
		`{"Action":"pass","Package":"github.com/distlock/locker/a","Test":"TestB/parallel/group/Other"}`,
		`{"Action":"fail","Package":"github.com/distlock/locker/a","Test":"TestB/parallel"}`,
		`{"Action":"fail","Package":"github.com/distlock/locker/a","Test":"TestB"}`,
		`{"Action":"skip","Package":"github.com/distlock/locker/a","Test":"TestC"}`,
		`{"Action":"fail","Package":"github.com/distlock/locker/a"}`,
		`{"Action":"fail","Package":"github.com/distlock/locker/b"}`,
	}, "\n")))
	require.Equal(t, 2, r.Passed)
	require.Equal(t, []string{"a: TestB/parallel/group/Case", "b: the package"}, r.Failed)
	require.Equal(t, []string{"a: TestC"}, r.Skipped)
}

// TestMerge: what a run on another machine has found is kept, and neither the copies of what was here before nor older results.
func TestMerge(t *testing.T) {
	write := func(all ...result) string {
		store := t.TempDir() + "/results.json"
		for _, r := range all {
			require.NoError(t, keep(store, r))
		}
		return store
	}
	on := func(version, date, commit string) result {
		return result{Product: "Redis", Version: version, Date: date, Commit: commit}
	}
	store := write(on("7.2.6", "2026-11-26", "a"), on("7.4.1", "2026-11-26", "a"))
	require.NoError(t, merge(store, []string{
		write(on("7.2.6", "2026-11-26", "b"), on("7.4.1", "2026-11-26", "a")),
		write(on("7.2.6", "2026-11-26", "a"), on("7.4.1", "2026-11-25", "c"), on("8.4.2", "2026-11-27", "b")),
	}))
	all, err := load(store)
	require.NoError(t, err)
	require.Equal(t, []result{on("7.2.6", "2026-11-26", "b"), on("7.4.1", "2026-11-26", "a"), on("8.4.2", "2026-11-27", "b")}, all)
	require.Error(t, merge(store, []string{t.TempDir() + "/results.json"}), "there is no such file")
}
