// Package memory is the reference strategy: locks kept in this process, without
// Redis. It is for unit tests of code that takes a [locker.Locker], and for
// programs that run as one process.
//
// It guarantees the same as every strategy: one holder per key, re-entry
// under a lease's context, leases that end unless renewed, waiters served in
// turn, fencing tokens that grow from grant to grant. Lockers made on the same
// [Store] exclude each other as processes on one Redis would, and a second
// Locker with the same explicit owner is excluded too: hold counts are not
// shared.
//
// Limits:
//
//   - It excludes no other process, and no Locker on another Store.
//   - Nothing survives the process. Tokens still grow across restarts as long as
//     the wall clock does: they start at its microseconds.
//   - Between Lockers there is no order among waiters, only within each. A lease that
//     runs out wakes no waiter; the first waiter asks at that time.
//
// A Store starts no goroutine and no timer; leases run out by the clock, read at
// the next call. So it works inside a [testing/synctest] bubble, where a lease
// of 30 s takes no time to run out. Make the Store and its Lockers inside the
// bubble, and Close these before it ends.
package memory
