// Package redisdriver is what the strategies on a single Redis deployment
// share: the clients they use, running scripts, the meaning of errors, the
// names of keys, and a [Driver] that needs only a strategy's scripts.
//
// # Clients
//
// The client given by the user is configured for the user's needs: retries that
// send a lock command twice, reads that ignore the context, a pool that waiters
// could exhaust. So all commands run on a small private client made from its options
// (no retries, short timeouts), and subscriptions on connections of their own. All of them are
// dialled as the user's client dials, by its hooks; see dialerOf. A client
// whose options cannot be read (a redis.Ring, a wrapper) serves everything itself;
// waiters then poll.
//
// The commands of many callers share round trips, in lanes; see lane and direct. A caller
// leaves when its ctx ends, which go-redis does not look at while a command is on the
// wire. A later command of the same claim waits for the one that was left behind, where
// it matters which of the two the server sees first.
//
// # Keys
//
// Beside a lock's own key there is one fencing counter, [FenceKey], in the slot
// of the lock key whatever the name. All strategies use the same one, so that
// tokens grow across a change of strategy.
package redisdriver
