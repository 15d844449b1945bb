package renewal

// queue is a binary heap of elements that know their place in it, so that any
// of them can be moved or removed. Keys lie in the heap itself: comparisons
// touch no element.
type queue[E interface{ place(kind) *int32 }] struct {
	slots []slot[E]
	kind  kind
}

// kind tells the queues apart that an element is in.
type kind uint8

const (
	inEnds kind = iota
	inGroup
)

type slot[E any] struct {
	at int64
	e  E
}

func (q *queue[E]) len() int { return len(q.slots) }

// top is the first element; q is not empty.
func (q *queue[E]) top() E { return q.slots[0].e }

// min is the first key, never if q is empty.
func (q *queue[E]) min() int64 {
	if len(q.slots) == 0 {
		return never
	}
	return q.slots[0].at
}

// has reports whether e is in q. A place is an index plus one, so that the
// zero Entry is nowhere.
func (q *queue[E]) has(e E) bool { return *e.place(q.kind) != 0 }

// key is that of e, which is in q.
func (q *queue[E]) key(e E) int64 { return q.slots[*e.place(q.kind)-1].at }

// set moves e to key at, or inserts it.
func (q *queue[E]) set(e E, at int64) {
	i := int(*e.place(q.kind)) - 1
	if i < 0 {
		i = len(q.slots)
		q.slots = append(q.slots, slot[E]{at, e})
	}
	q.fix(i, slot[E]{at, e})
}

// remove takes e out, if it is in.
func (q *queue[E]) remove(e E) {
	p := e.place(q.kind)
	i := int(*p) - 1
	if i < 0 {
		return
	}
	*p = 0
	n := len(q.slots) - 1
	last := q.slots[n]
	q.slots[n] = slot[E]{} // let go of the element
	q.slots = q.slots[:n]
	if i < n {
		q.fix(i, last)
	}
}

// fix puts s where it belongs, given that i is free.
func (q *queue[E]) fix(i int, s slot[E]) {
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

func (q *queue[E]) put(i int, s slot[E]) {
	q.slots[i] = s
	*s.e.place(q.kind) = int32(i + 1)
}
