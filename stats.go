package locker

// Stats counts what a Locker has at one moment; see [Client.Stats]. Leases on permits of one key
// count as one in Locks.
type Stats struct {
	Locks   int // keys that this Locker holds
	Leases  int // on these keys, not unlocked; more than Locks where a key has several leases, by re-entry or for permits
	Waiting int // calls that wait for a lock or ask for one
	// Background is how many releases and clean-ups go on after their calls have returned,
	// as they do while the store does not answer.
	Background int

	// DroppedEvents counts the events that the Observer was too slow for, since the Locker was made.
	DroppedEvents uint64
	// DroppedRecords counts the records that the Logger was too slow for, since the Locker was made.
	DroppedRecords uint64
}

// Stats counts what the Locker has. It asks no store. It looks at each key, which takes up to
// 1 µs, and holds up the calls for a 64th of the keys at a time. After Close there are no locks.
func (e *Client) Stats() (st Stats) {
	for i := range e.stripes {
		e.stripes[i].count(&st)
	}
	st.Background = e.background.Len()
	st.DroppedEvents, st.DroppedRecords = e.notices.events.Dropped(), e.notices.records.Dropped()
	return st
}

// count adds what the stripe has.
func (s *stripe) count(st *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ks := range s.keys {
		n := 0
		if ks.current != nil {
			n = ks.current.leasesHeld()
		}
		for c := range ks.permits {
			n += c.leasesHeld()
		}
		if n > 0 {
			st.Locks++
			st.Leases += n
		}
		if ks.queue != nil {
			for w := ks.head; w != nil; w = w.next {
				st.Waiting++
			}
		}
	}
}

// leasesHeld returns how many leases hold the claim; 0 once its end has come. It needs
// the mutex.
func (c *claim) leasesHeld() int {
	if c.state != claimHeld || !c.inTime() {
		return 0
	}
	return c.holds()
}
