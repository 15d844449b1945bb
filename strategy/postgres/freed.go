package postgres

import (
	"hash/maphash"
	"sync/atomic"
)

// freed remembers keys that this Locker has released, or of which it saw free permits: their rows are there and likely
// to have room. It may be wrong: that costs one statement more.
type freed struct {
	seed  maphash.Seed
	slots [1024]atomic.Uint64 // hashes of keys; 0: none
}

func (f *freed) slot(key string) (*atomic.Uint64, uint64) {
	hash := maphash.String(f.seed, key) | 1
	return &f.slots[hash>>1%uint64(len(f.slots))], hash
}

func (f *freed) note(key string) {
	slot, hash := f.slot(key)
	slot.Store(hash)
}

// take forgets key, and reports whether it was remembered.
func (f *freed) take(key string) bool {
	slot, hash := f.slot(key)
	return slot.CompareAndSwap(hash, 0)
}
