package compare

import (
	"slices"
	"strings"
)

// property is a promise of a strategy that does not depend on the machine. The conformance suites hold them.
type property struct {
	id, title string
	of        map[string]string // by strategy; those that have it not are missing
}

// properties lists the promises in which strategies differ.
var properties = []property{
	{"order", "first come, first served, among processes", map[string]string{"blpop": "yes", "etcd": "yes"}},
	{"woken", "a release wakes a waiter in another process", map[string]string{
		"hashreentrant": "pub/sub", "blpop": "the release grants it the lock", "redlock": "notices of a majority", "postgres": "NOTIFY", "etcd": "a watch",
	}},
	{"crowd", "a release wakes one waiter, however many processes wait", map[string]string{"blpop": "the longest waiting", "etcd": "the next in line"}},
	{"reentry", "an owner re-enters from another process", map[string]string{"hashreentrant": "yes", "blpop": "yes"}},
	{"failover", "one server of several may die", map[string]string{
		"setnx": "with WithReplicaAcks", "hashreentrant": "with WithReplicaAcks", "blpop": "with WithReplicaAcks", "redlock": "a minority of the nodes",
		"postgres": "with synchronous replicas", "mysql": "with semi-synchronous or group replication", "etcd": "a minority of the members",
	}},
	{"crash", "locks survive a crash of the server, by its default settings", map[string]string{
		"postgres": "like every commit", "mysql": "like every commit", "etcd": "yes",
	}},
	{"clock", "no jump of a server's clock ends a lease early", map[string]string{"memory": "yes", "etcd": "yes"}},
	{"interop", "programs with other libraries take the lock", map[string]string{
		"setnx": "SET NX PX, as most libraries lock", "hashreentrant": "Redisson (Java)", "blpop": "Redisson (Java), but no order beside it", "redlock": "redsync (Go)",
	}},
	{"rows", "a key can be locked until a transaction of the application's ends", map[string]string{"postgres": "LockTx", "mysql": "LockTx"}},
	{"permits", "permits: semaphores, and readers of all processes together", map[string]string{
		"setnx": "yes", "hashreentrant": "yes", "blpop": "first come, first served", "memory": "yes", "postgres": "yes", "mysql": "yes", "etcd": "first come, first served",
	}},
	{"noticed", "a deleted key is noticed at once", map[string]string{
		"setnx": "with WithLossDetection", "hashreentrant": "with WithLossDetection", "blpop": "with WithLossDetection", "memory": "with WithLossDetection",
		"etcd": "with WithLossDetection",
	}},
	{"processes", "it excludes other processes", map[string]string{
		"setnx": "yes", "hashreentrant": "yes", "blpop": "yes", "redlock": "yes", "postgres": "yes", "mysql": "yes", "etcd": "yes",
	}},
}

// propertiesOf returns the properties of a strategy.
func propertiesOf(strategy string) map[string]string {
	all := make(map[string]string)
	for _, p := range properties {
		if text, ok := p.of[strategy]; ok {
			all[p.id] = text
		}
	}
	return all
}

// promises returns the table of what does not depend on this run.
func (r *Result) promises() (rows []row) {
	for _, p := range properties {
		line := row{Title: p.title}
		for _, s := range r.Strategies {
			c := cell{Text: "no"}
			if text, ok := s.Properties[p.id]; ok {
				c = cell{Text: text, Mark: "good"}
			}
			line.Cells = append(line.Cells, c)
		}
		rows = append(rows, line)
	}
	return rows
}

// families are the kinds of stores of strategies.
var families = map[string]string{
	"setnx": "Redis", "hashreentrant": "Redis", "blpop": "Redis", "redlock": "Redis",
	"postgres": "PostgreSQL", "mysql": "MySQL", "etcd": "etcd", "memory": "memory",
}

// only has a line for what one store or two promise and the other stores here do not.
func (r *Result) only() (lines []string) {
	all := make(map[string]bool)
	for _, s := range r.Strategies {
		all[families[s.Strategy]] = true
	}
	promised := make(map[string][]string) // by stores
	var order []string
	for _, p := range properties {
		var by []string
		for _, s := range r.Strategies {
			if _, has := s.Properties[p.id]; has && !slices.Contains(by, families[s.Strategy]) {
				by = append(by, families[s.Strategy])
			}
		}
		if who := strings.Join(by, " and "); len(by) > 0 && len(by) <= 2 && len(by) < len(all) {
			if promised[who] == nil {
				order = append(order, who)
			}
			promised[who] = append(promised[who], p.title)
		}
	}
	for _, who := range order {
		lines = append(lines, "Only "+who+": "+strings.Join(promised[who], "; "))
	}
	return lines
}
