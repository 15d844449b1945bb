// Package newest keeps values in Redis. Of the values that are put under one key, the one with the greatest fencing token
// stays, whatever the order in which they arrive.
package newest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const mark = "token:"

// A Value stands at a key.
type Value struct {
	Token int64
	Data  []byte
	Left  time.Duration // until it ends
}

// A key is a string: mark, the token, a space and the data. The mark keeps values of other programs from being taken for
// ours and replaced. One SET writes a value with its end, so that none stays for ever. A token is below 2^53, which a
// Lua number has exactly. A script that is sent twice stores the same value, which lasts for ttl from the second time. So
// does one whose reply is lost: the caller has its value either way. A Put that arrives after a later one changes nothing,
// unless the later value has ended: then an old value stands there for ttl at most.
var (
	putScript = redis.NewScript(`local kept = redis.call('GETRANGE', KEYS[1], 0, 23)
local token = string.match(kept, '^token:(%d+) ')
if kept ~= '' and not token then
  return redis.error_reply('ERR another program has written there')
end
if token and tonumber(token) > tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], 'token:' .. ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return 1`)
	getScript = redis.NewScript(`return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}`)
)

// Put keeps data for ttl, unless the key has a value with a greater token.
func Put(ctx context.Context, rdb redis.Scripter, key string, token int64, data []byte, ttl time.Duration) error {
	return putScript.Run(ctx, rdb, []string{key}, token, data, max(ttl.Milliseconds(), 1)).Err()
}

// Get returns the value of a key; ok is false if there is none.
func Get(ctx context.Context, rdb redis.Scripter, key string) (v Value, ok bool, err error) {
	reply, err := getScript.Run(ctx, rdb, []string{key}).Slice()
	if err != nil {
		return Value{}, false, err
	}
	text, ok := reply[0].(string)
	if !ok {
		return Value{}, false, nil
	}
	marked, isOurs := strings.CutPrefix(text, mark)
	number, data, found := strings.Cut(marked, " ")
	token, err := strconv.ParseInt(number, 10, 64)
	if !isOurs || !found || err != nil {
		return Value{}, false, fmt.Errorf("want %q, a token and a value, got %.40q", mark, text)
	}
	left, _ := reply[1].(int64)
	return Value{token, []byte(data), time.Duration(left) * time.Millisecond}, true, nil
}
