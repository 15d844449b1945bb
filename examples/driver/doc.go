// Package etcdlike shows how to write a driver for a store that package locker
// does not know: one like etcd, with revisions, transactions, watches, and leases
// that count seconds.
//
// store.go is the store, a model in memory, so that nothing needs to be
// installed. driver.go is the driver: a lock is a key with the claim's id as its
// value and a lease of its own, and the fencing token is made of the revision that
// created the key. driver_test.go runs the conformance suite on the two; it can
// look into the store and break locks, which adds cases. docs/driver.md in the
// module's root explains each step.
package etcdlike
