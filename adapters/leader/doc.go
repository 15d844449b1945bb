// Package leader elects one of several candidates to lead, by a lock.
//
//	err := leader.Run(ctx, l, "billing/leader", func(ctx context.Context, token int64) error {
//		return bill(ctx, token) // until ctx ends
//	})
//
// A term begins when a candidate gets the lock, and ends when its function has
// returned. What happens next depends on why the function returned:
//
//   - ctx has ended: Run waits for the function, gives the lock back and returns ctx's
//     cause.
//   - The leadership is lost: the function's context ends, and Run waits for the
//     function, whatever it returns then. The candidate runs again after a pause.
//   - The function returns an error: the candidate gives the lock back and runs
//     again after a pause, so that another one has its turn.
//   - The function returns nil while it leads: the candidate gives the lock back and Run
//     returns nil. It does not run again.
//   - The function panics: the lock is given back and the panic goes on.
//
// The guarantees are those of the lock. At most one owner leads. The
// leader's context ends when the leadership ends. A leader that was paused between its last
// look at the context and its write may still write when the next one leads: let the
// resource refuse a token that is smaller than the greatest that it has seen. A function
// that ignores its context goes on beside the next leader.
//
// A leader that is asked to step down ([locker.Client.RequestRelease], locker ask on the command
// line) learns of it by [StepDownRequested]. It steps down when it is ready: its
// function returns [ErrSteppedDown].
//
// When a leader crashes, another one follows after the TTL of its lock, 30 s by default:
// WithLockOptions(locker.WithTTL(d)) sets another. WithMaxHold limits the length of a
// term. Candidates whose contexts name the same owner ([locker.ContextWithOwner]) share the
// leadership, as they share every lock: each has its own events, with the token that they
// share, and a term ends for each by itself.
//
// # Who leads
//
// [Elector.Leader] returns who leads, and [Elector.Observe] each leader in turn: the name and the
// payload of [WithIdentity] (a payload is, for example, an address), the token, and the time of
// the election. The name and the payload stand in the leader's claim of the lock, as metadata
// ([locker.WithMetadata]): they begin and end with the leadership, and cost no command and no
// key. An Elector whose Run is never called only looks:
//
//	e, err := leader.New(l, "billing/leader")
//	...
//	for term, err := range e.Observe(ctx) {
//
// # Compared with other elections
//
// The package k8s.io/client-go/tools/leaderelection offers:
//
//	LeaseDuration, RenewDeadline,     locker.WithTTL, WithMargin (the time between the deadlines
//	RetryPeriod                       of the leader and of the others), WithRenewInterval
//	OnStartedLeading(ctx)             the function that Run calls; its context ends with the term
//	OnStoppedLeading                  the function returns, Ended; Run goes on with the next term
//	OnNewLeader(identity)             Observe: with payload, token and time, and of those that only look
//	Identity, Name                    WithIdentity
//	GetLeader, IsLeader               Leader, which asks the store; IsLeader
//	Check, HealthzAdaptor             Healthy
//	ReleaseOnCancel                   always: the lock is given back once the function has returned
//	metrics (status, slow path)       Stats, and those of the Locker's Observer
//	AcquireTime, RenewTime            Term.Since; renewals are not shown
//	LeaderTransitions                 not counted; the token grows by each term
//	RecordEvent (of Kubernetes)       WithObserver
//	RunOrDie                          no: Run returns an error
//	Run returns after a loss          Run stands again
//	Coordinated, PreferredHolder      no: candidates have no rank
//	no fencing                        the token
//
// The type go.etcd.io/etcd/client/v3/concurrency.Election offers:
//
//	Campaign(value)                   Run, with the payload of WithIdentity
//	Proclaim(value)                   no: a payload lasts for the term; step down for another
//	Resign                            the function returns, or returns ErrSteppedDown
//	Leader, ErrElectionNoLeader       Leader, which fails with locker.ErrNotHeld
//	Observe, which may skip leaders   Observe, which skips none without an error
//	Key, Rev, Header                  the lock's key, Term.Token; no answer of the store's own
//	ResumeElection                    no: a process that begins anew stands for election
//	order of arrival                  with the strategies etcd and blpop
//	session.Done                      the function's context, which ends by itself
//
// With both, a leader has to watch for its loss by itself, or the process ends. Here the context
// ends by the local clock, without an answer of the store, before the next one can lead.
package leader
