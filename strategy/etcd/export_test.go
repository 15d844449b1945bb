package etcd

import "github.com/distlock/locker/driver"

// For tests of package etcd_test.
var RangeOf = rangeOf

func StoreError(err error) error { return storeError(err, false) }

func MemberName(key, id string) string { return member{key, id}.name() }

func MemberOf(name string) (key, id string, ok bool) {
	m, ok := memberOf(name)
	return m.key, m.id, ok
}

// IdleLeases is how many leases wait for the next claim.
func IdleLeases(d driver.Driver) int {
	s := &d.(*etcdDriver).leases
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.idle)
}
