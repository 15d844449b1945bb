package once

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

// HeaderReplayed is set to "true" in an answer that is replayed; see [WithReplay].
const HeaderReplayed = "Idempotency-Replayed"

// putTimeout bounds how long a request waits until its answer is stored.
const putTimeout = 5 * time.Second

// Answer is a handler's answer, as a [Store] keeps it. It can be written as JSON.
type Answer struct {
	Status      int
	Header      http.Header // what the handler has set
	Body        []byte
	Fingerprint [sha256.Size]byte // of the request
	Token       int64             // the fencing token of the request's lock
}

// Store keeps answers for [WithReplay]. Its methods are called by many goroutines.
type Store interface {
	// Put keeps the answer for ttl under the key: [WithPrefix]'s prefix and the key of the request. An answer with a
	// greater Token stays: a process that was stopped past the TTL has come late. (A Locker made with
	// [locker.WithoutFencing] grants no tokens: each answer replaces the one before.) The request does not end before
	// Put returns, and ctx ends after 5 s or less. If Put fails, repetitions are refused with 409; nothing else reports
	// it.
	Put(ctx context.Context, key string, a Answer, ttl time.Duration) error
	// Get returns the answer that is kept under the key. ok is false if there is none.
	// An error has the same effect.
	Get(ctx context.Context, key string) (a Answer, ok bool, err error)
}

// WithReplay answers a repetition with the answer of the first request, from s, instead of 409.
// The answer has [HeaderReplayed]. A repetition is refused with 409 as before while the first
// request runs ([WithWait] lets it wait), and where s does not have the answer. An answer is not
// stored if its body has more bytes than the parameter most (1 or more; each request that runs
// takes so much memory), if its handler ran for longer than the TTL or took over the connection,
// or if [WithKept] did not keep its key. A replay has no trailers, it has the headers of an outer
// middleware even if the handler deleted them, and it ends up to 5 s before the key.
//
// An answer may be private. fingerprint returns what has to be the same in both requests for the
// answer to be handed out: the name of the user above all, and a hash of the body, if you like.
// (If fingerprint reads the body, it sets the request's Body to one that can be read again.) If
// it differs, the key was used for another request, and the answer is 422 Unprocessable Content.
// The fingerprint is stored as a SHA-256.
func WithReplay(s Store, most int, fingerprint func(*http.Request) string) Option {
	return option(func(to *settings) error {
		switch {
		case s == nil:
			return check.Invalid("WithReplay: the Store is nil; NewRedis and NewMemory make one")
		case most < 1:
			return check.Invalid("WithReplay: want a longest body of 1 byte or more, got %d", most)
		case fingerprint == nil:
			return check.Invalid("WithReplay: want a function that names the user of a request, got nil")
		}
		to.replay = &replay{s, most, fingerprint}
		return nil
	})
}

type replay struct {
	store       Store
	most        int
	fingerprint func(*http.Request) string
}

func (p *replay) sum(r *http.Request) [sha256.Size]byte {
	return sha256.Sum256([]byte(p.fingerprint(r)))
}

// errOther is the error of a refusal with 422.
var errOther = fmt.Errorf("%w: the key was used for another request", locker.ErrNotAcquired)

// replayed answers a request whose key is taken, if there is an answer for it. Whether the request that has the
// key still runs does not matter: its answer is there only once it has ended. An answer is gone before its
// lock's TTL is over (see keep), so it is never that of a request before the one that has the key.
func (g *guard) replayed(w http.ResponseWriter, r *http.Request, key string, taken error) bool {
	if g.replay == nil {
		return false
	}
	a, ok, err := g.replay.store.Get(r.Context(), key)
	switch {
	case err != nil || !ok:
		return false
	case a.Fingerprint != g.replay.sum(r):
		g.answer(w, r, http.StatusUnprocessableEntity, 0, errors.Join(errOther, taken))
	default:
		a.write(w)
	}
	return true
}

func (a *Answer) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header.Clone())
	w.Header().Set(HeaderReplayed, "true")
	w.WriteHeader(a.Status)
	if len(a.Body) > 0 {
		_, _ = w.Write(a.Body) // fails if the client has left
	}
}

// keep stores the answer until the lease ends, or up to 5 s less: the Store may begin to count
// when Put begins or when it ends, and the answer must not outlive the key.
func (g *guard) keep(r *http.Request, key string, c *copied, status int, lease *locker.Lease) {
	ttl := time.Until(lease.Deadline())
	if c.spoilt || ttl <= 0 {
		return
	}
	put := min(putTimeout, ttl/2)
	// The client may have left, and ask again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), put)
	defer cancel()
	a := Answer{Status: status, Header: c.header, Body: bytes.Clone(c.body.Bytes()), Fingerprint: c.sum, Token: lease.Token()}
	_ = g.replay.store.Put(ctx, key, a, ttl-put) // without an answer, repetitions are refused
}

// copied is the answer so far, copied for a Store.
type copied struct {
	sum    [sha256.Size]byte
	before http.Header // as an outer middleware has set it: each request has its own
	header http.Header // what the handler has set; nil until the answer has a status
	body   bytes.Buffer
	most   int
	spoilt bool // it cannot be replayed
}

// begin notes the header at the moment at which the answer gets its status.
func (c *copied) begin(h http.Header) {
	if c == nil || c.header != nil {
		return
	}
	c.header = h.Clone()
	maps.DeleteFunc(c.header, func(k string, vs []string) bool { return slices.Equal(vs, c.before[k]) })
	if c.header == nil {
		c.header = http.Header{}
	}
}

// undo forgets the header: the answer has no status yet.
func (c *copied) undo() {
	if c != nil {
		c.header = nil
	}
}

func (c *copied) write(b []byte) {
	if c == nil || c.spoilt {
		return
	}
	if c.body.Len()+len(b) > c.most {
		c.spoil()
		return
	}
	c.body.Write(b)
}

func (c *copied) spoil() {
	if c != nil {
		c.spoilt, c.body = true, bytes.Buffer{}
	}
}

// Memory is a [Store] in the memory of this process: repetitions that reach another process are
// refused with 409, where [Redis] answers them. Make it with [NewMemory].
type Memory struct {
	most int

	mu    sync.Mutex
	used  int
	byKey map[string]*list.Element
	order *list.List // of kept, the oldest first
}

type kept struct {
	key   string
	a     Answer
	until time.Time
	size  int
}

// NewMemory makes a Store that takes at most about the given number of bytes, 1 or more. For
// a new answer it drops the oldest ones.
func NewMemory(bytes int) (*Memory, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("once: %w", check.Invalid("NewMemory: want 1 byte or more, got %d", bytes))
	}
	return &Memory{most: bytes, byKey: make(map[string]*list.Element), order: list.New()}, nil
}

// overhead is about what an answer takes beside its texts.
const overhead = 400

// Put implements [Store]. It fails if the answer alone is too large.
func (m *Memory) Put(_ context.Context, key string, a Answer, ttl time.Duration) error {
	size := overhead + len(key) + len(a.Body)
	for k, vs := range a.Header {
		size += len(k)
		for _, v := range vs {
			size += len(v)
		}
	}
	if size > m.most {
		return fmt.Errorf("once: %w", check.Invalid("an answer of %d bytes is more than the %d of NewMemory", size, m.most))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if at := m.byKey[key]; at != nil {
		if k := at.Value.(*kept); k.a.Token > a.Token && now.Before(k.until) {
			return nil
		}
		m.drop(at)
	}
	for at := m.order.Front(); at != nil && (m.used+size > m.most || !now.Before(at.Value.(*kept).until)); at = m.order.Front() {
		m.drop(at)
	}
	m.used += size
	m.byKey[key] = m.order.PushBack(&kept{key, a, now.Add(ttl), size})
	return nil
}

// drop needs mu.
func (m *Memory) drop(at *list.Element) {
	if at != nil {
		k := m.order.Remove(at).(*kept)
		delete(m.byKey, k.key)
		m.used -= k.size
	}
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, key string) (Answer, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.byKey[key]
	if at == nil {
		return Answer{}, false, nil
	}
	k := at.Value.(*kept)
	if !time.Now().Before(k.until) {
		m.drop(at)
		return Answer{}, false, nil
	}
	return k.a, true, nil
}
