package main

import (
	_ "github.com/distlock/locker/strategy/etcd/register"     // etcd, etcds
	_ "github.com/distlock/locker/strategy/mysql/register"    // mysql, mariadb
	_ "github.com/distlock/locker/strategy/postgres/register" // postgres, postgresql
)
