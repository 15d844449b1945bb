package simulation

import (
	"math/rand/v2"
	"time"
)

// chance draws what a seed decides.
type chance struct{ *rand.Rand }

func newChance(seed uint64, of int) chance { return chance{rand.New(rand.NewPCG(seed, uint64(of)))} }

func (r chance) oneIn(n int) bool { return r.IntN(n) == 0 }

func (r chance) upTo(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }

// latency returns the time of a command, or of an answer, on the way. Where the times are whole multiples of the
// world's grain, many things happen at the same instant.
func (r chance) latency(w *world) time.Duration {
	if w.far == 0 || r.oneIn(3) {
		return 0
	}
	return r.upTo(w.far).Truncate(w.grain)
}

// pick is one of several.
func pick[T any](r chance, of ...T) T { return of[r.IntN(len(of))] }
