// Package layouts recognises what the strategies on Redis, and Redisson, keep at a lock key.
// They lock at the same key, so each strategy's Inspect recognises the locks of all.
package layouts

import (
	"regexp"
	"strconv"

	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/uuid"
)

// All are the layouts, in the order in which they are tried.
var All = []redisdriver.Layout{
	{Strategy: "permits", Recognize: isPermits},
	{Strategy: "redlock", Recognize: isRedlocks, OnSeveralServers: true},
	{Strategy: "setnx", Recognize: isSetnxs},
	{Strategy: "blpop", Recognize: isBlpops, Queue: blpopQueue},
	{Strategy: "hashreentrant", Recognize: isHashreentrants},
	{Strategy: "redisson", Recognize: isRedissons},
}

// Claims of redlock, hashreentrant and blpop have version 8, those of setnx version 4.
var (
	claim4    = regexp.MustCompile(`^` + uuid.Pattern("4") + `:\d+(\?\S*)?$`)
	claim8    = regexp.MustCompile(`^` + uuid.Pattern("8") + `:\d+(\?\S*)?$`)
	redissons = regexp.MustCompile(`^` + uuid.Pattern("0-9a-f") + `:\d+$`)
)

// number returns the number s, 0 if s is none.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
