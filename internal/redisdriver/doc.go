// Package redisdriver has what the strategies on a single Redis deployment share about locks:
// a [Driver] that needs only a strategy's scripts, what the scripts reply, fencing counters,
// grants that replicas confirm, and inspection. Package redisconn sends the commands, and
// package redispubsub subscribes to the channels of releases.
//
// # Keys
//
// Beside a lock's own key there is one fencing counter, [FenceKey], in the slot of the lock
// key whatever the name. All strategies use the same one, so that tokens grow across a change
// of strategy.
package redisdriver
