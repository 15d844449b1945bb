package soak

import "testing"

// TestPast: a run is recorded with the steps of its replay, its servers, and the flags that repeat it.
func TestPast(t *testing.T) {
	r := &Report{Flags: "-callers=2", Rows: []Row{
		{Single, "setnx", map[string]int{Operations: 3, Steps: 5}},
		{Single, "setnx sticky", map[string]int{Operations: 3, Steps: 6}},
		{Quorum, "redlock", map[string]int{Operations: 3, Steps: 7}},
	}}
	p := r.past()
	if p.Operations != 9 || p.Steps != 18 || p.Flags != "-callers=2" || p.Where() != "Redis: single, quorum" {
		t.Errorf("got %+v on %s", p, p.Where())
	}
	if where := (Past{On: []string{"etcd on etcd", "etcd+semaphore on etcd", "etcd+rwlock on etcd"}}).Where(); where != "etcd" {
		t.Errorf("three strategies on etcd are on %s", where)
	}
}
