package strategy

import (
	"context"
	"net/url"
	"strings"
	"sync"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
)

// stores are the stores of memory://name, of which the process has one a name,
// as it has one server an address with Redis.
var stores = struct {
	mu     sync.Mutex
	byName map[string]*sharedStore
}{byName: make(map[string]*sharedStore)}

type sharedStore struct {
	*memory.Store
	users int // Lockers that are not released
}

func openMemory(_ context.Context, u *url.URL, opts ...locker.Option) (*locker.Client, func(), error) {
	l := &location{field: "url", raw: u.JoinPath("/").String(), url: u} // without a path it would have no //
	if u.Scheme != "memory" || u.User != nil || u.Port() != "" || strings.Trim(u.Path, "/") != "" {
		return nil, nil, l.refuse("memory://name; it has no server, and the name is any")
	}
	if err := l.checkNames(strings.Fields(lockParams)); err != nil {
		return nil, nil, err
	}
	name := u.Hostname()
	locks, err := acquireStore(name).New(opts...)
	if err != nil {
		releaseStore(name)
		return nil, nil, err
	}
	return locks, func() { releaseStore(name) }, nil
}

func acquireStore(name string) *sharedStore {
	stores.mu.Lock()
	defer stores.mu.Unlock()
	s := stores.byName[name]
	if s == nil {
		s = &sharedStore{Store: memory.NewStore()}
		stores.byName[name] = s
	}
	s.users++
	return s
}

// releaseStore forgets a store without users, unless a key is still held there:
// its holder may be at work after its Locker was closed.
func releaseStore(name string) {
	stores.mu.Lock()
	defer stores.mu.Unlock()
	s := stores.byName[name]
	if s.users--; s.users == 0 && len(s.Keys()) == 0 {
		delete(stores.byName, name)
	}
}
