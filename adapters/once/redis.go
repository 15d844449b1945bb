package once

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/adapters/internal/check"
	"github.com/distlock/locker/adapters/internal/newest"
)

// Redis is a [Store] in Redis, 6.0 or newer, which all processes share: a repetition gets the first answer from any of
// them, also when the first process has died. An answer is a string; Put and Get are one command each. Make it with
// [NewRedis].
type Redis struct {
	rdb    redis.UniversalClient
	prefix string
}

// NewRedis makes a Store of a client, which may be the one that locks. An answer stands at prefix, "answer:" and the key of
// its request. Programs whose Lockers have different prefixes need different ones here, too.
func NewRedis(rdb redis.UniversalClient, prefix string) (*Redis, error) {
	if rdb == nil {
		return nil, fmt.Errorf("once: %w", check.Invalid("NewRedis: the client is nil"))
	}
	return &Redis{rdb, prefix + "answer:"}, nil
}

// written is an Answer as it is stored. JSON would change a header that is not UTF-8, such as a file's name in Latin-1:
// its bytes stand in Bytes.
type written struct {
	Answer
	Bytes map[string][][]byte `json:",omitempty"`
}

func write(a Answer) written {
	w := written{Answer: a}
	for name, values := range a.Header {
		if utf8.ValidString(strings.Join(values, " ")) {
			continue
		}
		if w.Bytes == nil {
			w.Header, w.Bytes = maps.Clone(a.Header), make(map[string][][]byte)
		}
		delete(w.Header, name)
		for _, v := range values {
			w.Bytes[name] = append(w.Bytes[name], []byte(v))
		}
	}
	return w
}

func (w written) answer() Answer {
	for name, values := range w.Bytes {
		for _, v := range values {
			w.Header[name] = append(w.Header[name], string(v))
		}
	}
	return w.Answer
}

// Put implements [Store].
func (s *Redis) Put(ctx context.Context, key string, a Answer, ttl time.Duration) error {
	text, err := json.Marshal(write(a))
	if err == nil {
		err = newest.Put(ctx, s.rdb, s.prefix+key, a.Token, text, ttl)
	}
	if err != nil {
		return fmt.Errorf("once: put %q: %w", key, err)
	}
	return nil
}

// Get implements [Store].
func (s *Redis) Get(ctx context.Context, key string) (a Answer, ok bool, err error) {
	v, ok, err := newest.Get(ctx, s.rdb, s.prefix+key)
	var w written
	if err == nil && ok {
		err = json.Unmarshal(v.Data, &w)
	}
	if err != nil {
		return Answer{}, false, fmt.Errorf("once: get %q: %w", key, err)
	}
	return w.answer(), ok, nil
}
