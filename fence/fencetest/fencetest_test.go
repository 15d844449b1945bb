package fencetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/fence"
)

// planted is a Resource in memory with mistakes to choose.
type planted struct {
	key   func(string) string          // what becomes of keys
	seen  func(int64) int64            // what is stored of a token
	stale func(token, seen int64) bool // the comparison
	valid func(key string, token int64) error
	last  bool // the refused token is kept, too
	split bool // the check and the write are two steps
	apart bool // Write forgets to check

	mu     sync.Mutex
	tokens map[string]int64
	values map[string]string
}

func sound() *planted {
	return &planted{
		key:    func(key string) string { return key },
		seen:   func(token int64) int64 { return token },
		stale:  func(token, seen int64) bool { return seen > token },
		valid:  fence.Validate,
		tokens: make(map[string]int64), values: make(map[string]string),
	}
}

// between lets the other racers run, between two steps that should be one.
func (p *planted) between() {
	if p.split {
		p.mu.Unlock()
		time.Sleep(time.Millisecond) // the bug: others admit meanwhile
		runtime.Gosched()
		p.mu.Lock()
	}
}

func (p *planted) Admit(_ context.Context, key string, token int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admit(key, token)
}

func (p *planted) admit(key string, token int64) error {
	if err := p.valid(key, token); err != nil {
		return err
	}
	key = p.key(key)
	seen, known := p.tokens[key]
	p.between()
	if known && p.stale(token, seen) {
		if p.last {
			p.tokens[key] = token
		}
		return fmt.Errorf("planted: %w", fence.ErrStale)
	}
	p.tokens[key] = p.seen(token)
	return nil
}

func (p *planted) Write(_ context.Context, key string, token int64, value string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.apart {
		if err := p.admit(key, token); err != nil {
			return err
		}
	}
	p.values[key] = value
	return nil
}

func (p *planted) Read(_ context.Context, key string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values[key], nil
}

// twoSteps admits soundly, and writes in a step of its own.
type twoSteps struct{ *planted }

func (g twoSteps) Write(ctx context.Context, key string, token int64, value string) error {
	if err := g.Admit(ctx, key, token); err != nil {
		return err
	}
	time.Sleep(time.Duration(racers-1-(token-now)%racers) * time.Millisecond) // the bug: the greater the token, the sooner it writes
	g.mu.Lock()
	defer g.mu.Unlock()
	g.values[key] = value
	return nil
}

// twoMemories has another memory of tokens for writes.
type twoMemories struct{ *planted }

var writesOf sync.Map

func (g twoMemories) Write(ctx context.Context, key string, token int64, value string) error {
	own, _ := writesOf.LoadOrStore(g.planted, sound())
	if err := own.(*planted).Admit(ctx, key, token); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.values[key] = value
	return nil
}

func text(token, seen int64) bool { return fmt.Sprint(seen) > fmt.Sprint(token) }

// wrong are Guards with a mistake, and the cases that have to find it.
var wrong = []struct {
	name  string
	cases string
	plant func(p *planted)
}{
	{"equal is refused", "EqualTokenAgain", func(p *planted) { p.stale = func(token, seen int64) bool { return seen >= token } }},
	{"nothing is compared", "SmallerIsStale LaterIsStale LateWrite", func(p *planted) { p.stale = func(int64, int64) bool { return false } }},
	{"the last token is kept", "RefusedLeavesNoTrace", func(p *planted) { p.last = true }},
	{"compared as text", "ComparedAsNumbers", func(p *planted) { p.stale = text }},
	{"unset is let through", "UnsetToken", func(p *planted) { p.valid = unsetIsFine }},
	{"unset is stale", "UnsetToken", func(p *planted) { p.valid = unsetIsStale }},
	{"int32", "LargeTokens", func(p *planted) { p.seen = func(token int64) int64 { return int64(int32(token)) } }},
	{"uint32", "LargeTokens", func(p *planted) { p.seen = func(token int64) int64 { return int64(uint32(token)) } }},
	{"float64", "LargeTokens", func(p *planted) { p.stale = func(token, seen int64) bool { return float64(seen) > float64(token) } }},
	{"float32", "LargeTokens SmallerIsStale", func(p *planted) { p.stale = func(token, seen int64) bool { return float32(seen) > float32(token) } }},
	{"blanks at the end", "KeysApart", func(p *planted) { p.key = func(key string) string { return strings.TrimRight(key, " ") } }},
	{"blanks at the start", "KeysApart", func(p *planted) { p.key = strings.TrimSpace }},
	{"case", "KeysApart", func(p *planted) { p.key = strings.ToLower }},
	{"cut off at NUL", "KeysApart", func(p *planted) { p.key = func(key string) string { key, _, _ = strings.Cut(key, "\x00"); return key } }},
	{"cut off at 255", "KeysApart", func(p *planted) { p.key = cutOff(255) }},
	{"cut off at 3072", "KeysApart", func(p *planted) { p.key = cutOff(3072) }},
	{"cut off before the last", "KeysApart", func(p *planted) { p.key = cutOff(fence.MaxKey - 1) }},
	{"UTF-8 alone", "KeysApart", func(p *planted) { p.key = func(key string) string { return strings.ToValidUTF8(key, "\ufffd") } }},
	{"a hash tag alone", "KeysApart", func(p *planted) { p.key = hashTag }},
	{"no key is let through", "BadKeys", func(p *planted) { p.valid = keyIsFine }},
	{"three steps", "AtTheSameTime LaterIsStale", func(p *planted) { p.split = true }},
	{"Write does not check", "LateWrite WriteAfterAdmit WritesAtTheSameTime", func(p *planted) { p.apart = true }},
}

func unsetIsFine(string, int64) error { return nil }

func unsetIsStale(_ string, token int64) error {
	if token < 1 {
		return fence.ErrStale
	}
	return nil
}

func keyIsFine(_ string, token int64) error { return fence.Validate("k", token) }

func cutOff(n int) func(string) string {
	return func(key string) string { return key[:min(n, len(key))] }
}

func hashTag(key string) string {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(after, "}"); found && tag != "" {
			return tag
		}
	}
	return key
}

// find returns the error of the case of that name with a Guard.
func find(t *testing.T, name string, guard Resource) error {
	t.Helper()
	for _, c := range append(append([]testCase{}, cases...), resourceCases...) {
		if c.name == name {
			return c.check(&subject{ctx: t.Context(), guard: guard, resource: guard, base: rand.Text()})
		}
	}
	t.Fatalf("there is no case %s", name)
	return nil
}

func TestFindsPlantedMistakes(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	check := func(name, cases string, guard func() Resource) {
		for c := range strings.FieldsSeq(cases) {
			found[c] = true
			t.Run(strings.ReplaceAll(name, " ", "-")+"/"+c, func(t *testing.T) {
				t.Parallel()
				err := find(t, c, guard())
				if err == nil {
					t.Fatal("it was not found")
				}
				t.Log(strings.SplitN(err.Error(), "\n", 2)[0])
			})
		}
	}
	for _, w := range wrong {
		check(w.name, w.cases, func() Resource { p := sound(); w.plant(p); return p })
	}
	check("check and write are two steps", "WritesAtTheSameTime", func() Resource { return twoSteps{sound()} })
	check("Write has its own memory", "WriteAfterAdmit", func() Resource { return twoMemories{sound()} })
	for _, c := range append(append([]testCase{}, cases...), resourceCases...) {
		if !found[c.name] {
			t.Errorf("no planted mistake shows that %s finds something", c.name)
		}
	}
}

func TestSound(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) fence.Guard { return sound() })
}

// An answer other than the two refusals is no answer.
func TestErrorsAreNotRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		guard := failing{sound()}
		if err := find(t, c.name, guard); !errors.Is(err, errPlanted) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

type failing struct{ *planted }

var errPlanted = errors.New("planted failure")

func (failing) Admit(context.Context, string, int64) error { return errPlanted }
