package redisdriver

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/prelude.lua
var prelude string

// Script is a Lua script of a strategy, with the shared functions before it.
type Script struct {
	name   string
	source string
	sha    string
	fenced bool // it uses the fencing counter
}

// registry has the names of all scripts by their hash, for [ScriptName].
var registry sync.Map

// ScriptName tells tests which script an EVALSHA or EVAL runs, given its first
// argument; "" for none of ours.
func ScriptName(shaOrSource string) string {
	name, ok := registry.Load(shaOrSource)
	if !ok {
		sum := sha1.Sum([]byte(shaOrSource))
		name, _ = registry.Load(hex.EncodeToString(sum[:]))
	}
	s, _ := name.(string)
	return s
}

// NewScript makes a Script of a strategy's Lua source. name says what it does:
// "acquire", "renew", "release" or "set holds".
func NewScript(name, source string) *Script {
	fenced := strings.Contains(source, "KEYS[2]")
	source = prelude + "\n" + source
	sum := sha1.Sum([]byte(source))
	s := &Script{name, source, hex.EncodeToString(sum[:]), fenced}
	registry.Store(s.sha, name)
	return s
}

// noRetry is a command that go-redis must not send twice by itself.
type noRetry struct{ *redis.Cmd }

func (noRetry) NoRetry() bool { return true }

type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

func (s *Script) cmd(ctx context.Context, op, script string, keys []string, args []any) noRetry {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, op, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	routed(cmd, 3)
	return noRetry{cmd}
}

// routed tells a cluster client where the first key is. With a step count it does
// not ask the server for its table of commands either, which is long and which a
// user may not be allowed to see.
func routed(cmd *redis.Cmd, firstKey int8) {
	cmd.SetFirstKeyPos(firstKey)
	cmd.SetStepCount(1)
}

func (s *Script) bySHA(ctx context.Context, keys []string, args []any) noRetry {
	return s.cmd(ctx, "evalsha", s.sha, keys, args)
}

func (s *Script) bySource(ctx context.Context, keys []string, args []any) noRetry {
	return s.cmd(ctx, "eval", s.source, keys, args)
}

// run sends the script once. That the server does not know it (first use,
// restart, SCRIPT FLUSH) means that it did not run, so it is sent in full then.
func (s *Script) run(ctx context.Context, on processor, keys []string, args []any) (any, error) {
	cmd := s.bySHA(ctx, keys, args)
	err := on.Process(ctx, cmd)
	if isNoScript(err) {
		cmd = s.bySource(ctx, keys, args)
		err = on.Process(ctx, cmd)
	}
	if err != nil {
		relearn(on, err)
		return nil, classify(err)
	}
	return cmd.Val(), nil
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}
