package strategy

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

// Opener has the function that makes the Lockers of a strategy: exactly one of
// Redis, Nodes and Other.
type Opener struct {
	// Redis makes a Locker on one Redis deployment, such as setnx.New.
	Redis func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)
	// Nodes makes a Locker on several independent servers, such as redlock.New.
	Nodes func([]redis.UniversalClient, ...locker.Option) (*locker.Client, error)
	// Other makes a Locker on a store that is not Redis. u is the URL without the parameters about
	// locks, and without the strategy's name and the + if these stand before the scheme. If there is
	// no URL, u has the strategy's name as its scheme, and nothing else. Other refuses what it does
	// not know in u. The func(), which may be nil, is called after the Locker was closed.
	Other func(ctx context.Context, u *url.URL, opts ...locker.Option) (*locker.Client, func(), error)

	// ReplicaAcks makes the option for Config.ReplicaAcks; nil if the strategy
	// cannot wait for replicas.
	ReplicaAcks func(n int, timeout time.Duration) locker.Option
}

// Registry knows strategies by name. Its zero value is empty and ready for use.
// The functions of this package use one that all of a process share; a
// program that wants none of that makes its own.
type Registry struct {
	mu      sync.RWMutex
	openers map[string]Opener
}

// NewRegistry returns a Registry of the strategies of this module.
func NewRegistry() *Registry {
	return &Registry{openers: map[string]Opener{
		"blpop":         {Redis: blpop.New, ReplicaAcks: blpop.WithReplicaAcks},
		"hashreentrant": {Redis: hashreentrant.New, ReplicaAcks: hashreentrant.WithReplicaAcks},
		"memory":        {Other: openMemory},
		"redlock":       {Nodes: redlock.New},
		"setnx":         {Redis: setnx.New, ReplicaAcks: setnx.WithReplicaAcks},
	}}
}

// Register adds a strategy. Names are lower-case letters, digits, - and ., with a
// letter first; those taken are refused, and so are the schemes of Redis URLs.
func (r *Registry) Register(name string, o Opener) error {
	functions := 0
	for _, given := range []bool{o.Redis != nil, o.Nodes != nil, o.Other != nil} {
		if given {
			functions++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, taken := r.openers[name]
	switch {
	case !isScheme(name) || name != strings.ToLower(name) || strings.Contains(name, "+"):
		return refuse("strategy", name, "a name is of lower-case letters, digits, - and ., with a letter first")
	case taken:
		return refuse("strategy", name, "registered before")
	case slices.Contains(schemes, name):
		return refuse("strategy", name, "a name other than the schemes %s", strings.Join(schemes, ", "))
	case functions != 1:
		return refuse("strategy", name, "an Opener has exactly one of Redis, Nodes and Other; this one has %d", functions)
	}
	if r.openers == nil {
		r.openers = make(map[string]Opener)
	}
	r.openers[name] = o
	return nil
}

// Names returns the names of the strategies there are, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.openers))
}

// names lists the strategies that can do something, or all, for errors.
func (r *Registry) names(can func(Opener) bool) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	able := maps.Clone(r.openers)
	maps.DeleteFunc(able, func(_ string, o Opener) bool { return can != nil && !can(o) })
	if len(able) == 0 {
		return "none"
	}
	return list(able)
}

func (r *Registry) opener(name string) (Opener, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	o, ok := r.openers[name]
	return o, ok
}

var shared = NewRegistry()

// Register adds a strategy to the strategies that [Open] and [OpenURL] know, as
// [Registry.Register] does.
func Register(name string, o Opener) error { return shared.Register(name, o) }

// Names returns the names of the strategies there are, sorted.
func Names() []string { return shared.Names() }
