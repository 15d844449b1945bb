package renewal

import (
	"math/rand/v2"
	"testing"
)

// A queue against a map of what should be in it.
func TestQueue(t *testing.T) {
	q := queue[*Entry[int]]{kind: inGroup}
	entries := make([]Entry[int], 200)
	want := map[*Entry[int]]int64{}
	for step := range 20_000 {
		e := &entries[rand.N(len(entries))]
		if rand.N(3) == 0 {
			q.remove(e)
			delete(want, e)
		} else {
			at := rand.Int64N(100)
			q.set(e, at)
			want[e] = at
		}
		first := int64(never)
		for e, at := range want {
			first = min(first, at)
			if step%100 == 0 && (!q.has(e) || q.key(e) != at) {
				t.Fatal("an element is gone or has another key than it was given")
			}
		}
		if q.len() != len(want) || q.min() != first {
			t.Fatalf("%d elements, the first at %d; want %d, %d", q.len(), q.min(), len(want), first)
		}
		if q.len() > 0 && want[q.top()] != first {
			t.Fatalf("top is at %d, want the first, at %d", want[q.top()], first)
		}
	}
}
