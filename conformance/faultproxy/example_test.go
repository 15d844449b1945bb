package faultproxy_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/embedredis"
)

// A counter is incremented though its client is told that the connection broke: what
// the client must not do now is to try again.
func Example() {
	ctx := context.Background()
	server, err := embedredis.Start() // any server will do
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	proxy, err := faultproxy.New(strings.TrimSuffix(strings.TrimPrefix(server.URL(), "redis://"), "/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer proxy.Close()
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
	defer rdb.Close()

	rule := proxy.DropReply(faultproxy.MatchCommand("INCR"), 1)
	fmt.Println("INCR:", rdb.Incr(ctx, "n").Err())
	<-rule.Done()
	fmt.Println("n:", rdb.Get(ctx, "n").Val())
	// Output:
	// INCR: EOF
	// n: 1
}
