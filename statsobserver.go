package locker

// StatsObserver is an [Observer] that wants to know which Locker an event is of, and to ask it
// for its [Stats]. [New] calls ObserveLocker once for each Locker that is made with the observer,
// before the Locker's first event: the events of that Locker go to the returned Observer, each.
// closed is called by the Locker's Close when it is through, or by New
// when it fails; stats may be called once ObserveLocker has returned, also after closed was
// called. Neither ObserveLocker nor closed blocks. closed may be nil.
type StatsObserver interface {
	Observer
	ObserveLocker(strategy string, stats func() Stats) (each Observer, closed func())
}

// observe sets the observer of the events, and the function that Close calls.
func (e *Client) observe() {
	e.notices.observer, e.unobserved = e.set.observer, func() {}
	if o, ok := e.set.observer.(StatsObserver); ok {
		each, closed := o.ObserveLocker(e.name, e.Stats)
		if e.notices.observer = each; closed != nil {
			e.unobserved = closed
		}
	}
}
