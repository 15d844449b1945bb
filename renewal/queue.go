package renewal

import "time"

// queue is a binary heap of entries that know their place in it, so that any of
// them can be moved or removed. Times lie in the heap itself: comparisons touch
// no entry.
type queue[T any] struct {
	slots []slot[T]
	kind  kind
}

// kind names one of the two queues that an entry may be in.
type kind uint8

const (
	ends kind = iota
	renewals
)

type slot[T any] struct {
	at time.Duration
	e  *Entry[T]
}

// min returns the earliest time; Never if there is none.
func (q *queue[T]) min() time.Duration {
	if len(q.slots) == 0 {
		return Never
	}
	return q.slots[0].at
}

// set moves e to the time at, or puts it in; Never takes it out.
func (q *queue[T]) set(e *Entry[T], at time.Duration) {
	i := int(e.places[q.kind]) - 1 // a place is an index plus one: the zero Entry is nowhere
	switch {
	case at == Never && i < 0:
	case at == Never:
		q.remove(i)
	case i < 0:
		q.slots = append(q.slots, slot[T]{})
		q.fix(len(q.slots)-1, slot[T]{at, e})
	default:
		q.fix(i, slot[T]{at, e})
	}
}

// pop takes the first entry out.
func (q *queue[T]) pop() *Entry[T] {
	e := q.slots[0].e
	q.remove(0)
	return e
}

func (q *queue[T]) remove(i int) {
	q.slots[i].e.places[q.kind] = 0
	n := len(q.slots) - 1
	last := q.slots[n]
	q.slots[n] = slot[T]{} // let go of the entry
	q.slots = q.slots[:n]
	if i < n {
		q.fix(i, last)
	}
}

// fix puts s where it belongs, given that i is free.
func (q *queue[T]) fix(i int, s slot[T]) {
	for i > 0 {
		up := (i - 1) / 2
		if q.slots[up].at <= s.at {
			break
		}
		q.put(i, q.slots[up])
		i = up
	}
	for {
		down := 2*i + 1
		if down >= len(q.slots) {
			break
		}
		if r := down + 1; r < len(q.slots) && q.slots[r].at < q.slots[down].at {
			down = r
		}
		if s.at <= q.slots[down].at {
			break
		}
		q.put(i, q.slots[down])
		i = down
	}
	q.put(i, s)
}

func (q *queue[T]) put(i int, s slot[T]) {
	q.slots[i] = s
	s.e.places[q.kind] = int32(i + 1)
}
