package compare

import (
	"slices"
	"strings"
)

// property is what a strategy promises whatever the machine. The conformance suites hold them.
type property struct {
	id, title string
	of        map[string]string // by strategy; those that have it not are missing
}

// properties are what strategies differ in.
var properties = []property{
	{"order", "first come, first served, among processes", map[string]string{"blpop": "yes", "etcd": "yes", "memory": "yes"}},
	{"woken", "a release wakes a waiter in another process", map[string]string{
		"hashreentrant": "pub/sub", "blpop": "the release grants it the lock", "redlock": "notices of a majority", "postgres": "NOTIFY", "etcd": "a watch",
	}},
	{"reentry", "an owner re-enters from another process", map[string]string{"hashreentrant": "yes", "blpop": "yes"}},
	{"failover", "one server of several may die", map[string]string{
		"setnx": "with WithReplicaAcks", "hashreentrant": "with WithReplicaAcks", "blpop": "with WithReplicaAcks", "redlock": "a minority of the nodes",
		"postgres": "with synchronous replicas", "mysql": "with semi-synchronous or group replication", "etcd": "a minority of the members",
	}},
	{"crash", "locks outlive a crash of the server", map[string]string{
		"postgres": "as its commits do", "mysql": "as its commits do", "etcd": "yes",
	}},
	{"clock", "no jump of a server's clock ends a lease early", map[string]string{"memory": "yes", "etcd": "yes"}},
	{"interop", "programs with other libraries take the lock", map[string]string{
		"setnx": "SET NX PX", "hashreentrant": "Redisson", "blpop": "Redisson", "redlock": "redsync",
	}},
	{"rows", "a transaction of the application's can check the lock", map[string]string{"postgres": "LockTx", "mysql": "LockTx"}},
	{"processes", "it excludes other processes", map[string]string{
		"setnx": "yes", "hashreentrant": "yes", "blpop": "yes", "redlock": "yes", "postgres": "yes", "mysql": "yes", "etcd": "yes",
	}},
}

func propertyOf(id string) property {
	return properties[slices.IndexFunc(properties, func(p property) bool { return p.id == id })]
}

// propertiesOf are those of a strategy.
func propertiesOf(strategy string) map[string]string {
	all := make(map[string]string)
	for _, p := range properties {
		if text, ok := p.of[strategy]; ok {
			all[p.id] = text
		}
	}
	return all
}

// promises is the table of what does not depend on this run.
func (r *Result) promises() (rows []row) {
	for _, p := range properties {
		line := row{Title: p.title}
		for _, s := range r.Strategies {
			c := cell{Text: "no"}
			if text, ok := s.Properties[p.id]; ok {
				c = cell{text, "good"}
			}
			line.Cells = append(line.Cells, c)
		}
		rows = append(rows, line)
	}
	return rows
}

// only has a line for each strategy that promises what no other one here does.
func (r *Result) only() (lines []string) {
	for _, s := range r.Strategies {
		var alone []string
		for _, p := range properties {
			shared := slices.ContainsFunc(r.Strategies, func(o *Strategy) bool {
				_, has := o.Properties[p.id]
				return has && o.Strategy != s.Strategy
			})
			if _, has := s.Properties[p.id]; has && !shared {
				alone = append(alone, p.title)
			}
		}
		if len(alone) > 0 && len(r.Strategies) > 1 {
			lines = append(lines, "Only "+s.Name+": "+strings.Join(alone, "; "))
		}
	}
	return lines
}
