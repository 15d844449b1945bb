// Stores runs the flash sale with locks in any store, by a configuration alone:
//
//	REDIS_URL=blpop+redis://localhost:6379    go run . -config redis.yaml
//	POSTGRES_URL=postgres://localhost/shop    go run . -config postgres.yaml
//	MYSQL_URL=mysql://root@localhost:3306/shop go run . -config mysql.yaml
//	ETCD_URL=etcd://localhost:2379            go run . -config etcd.yaml
//
// The program is [github.com/distlock/locker/examples/flashsale/sale], with the imports that
// register three more strategies. It is a module of its own, so that the library's go.mod does not
// require the clients of all stores.
package main

import (
	"github.com/distlock/locker/examples/flashsale/sale"

	_ "github.com/distlock/locker/strategy/etcd/register"
	_ "github.com/distlock/locker/strategy/mysql/register"
	_ "github.com/distlock/locker/strategy/postgres/register"
)

func main() { sale.Main() }
