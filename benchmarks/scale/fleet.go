package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
)

// Fleet asks for Lockers that hold keys, each with connections of its own, as a process has.
type Fleet struct {
	Lockers, Keys int // keys of each Locker
	TTL           time.Duration
	Watch         time.Duration
}

// FleetResult has the cost of keeping the locks, for the server and for one second.
type FleetResult struct {
	CPU, Renewals, Reads, In, Out float64
	Connections                   float64 // of a Locker
	LockBytes, ConnectionBytes    float64 // of the server, for each
	Lost                          int
}

func workFleet(ctx context.Context, job Job, cfg Fleet) (r FleetResult, err error) {
	admin := dial(job.Addr)
	empty, err := infoOf(ctx, admin)
	if err != nil {
		return r, err
	}
	leases := make([]*locker.Lease, cfg.Lockers*cfg.Keys)
	if err := each(cfg.Lockers, cfg.Lockers, func(i int) error {
		l, err := strategies[job.Strategy](dial(job.Addr), locker.WithTTL(cfg.TTL))
		if err != nil {
			return err
		}
		began := time.Now()
		return each(cfg.Keys, (cfg.Keys+499)/500, func(k int) (err error) {
			// Spread over an interval: a process takes its locks as work comes.
			bound.Sleep(ctx, nil, time.Until(began.Add(cfg.TTL/3*time.Duration(k)/time.Duration(cfg.Keys))))
			leases[i*cfg.Keys+k], err = l.Lock(ctx, fmt.Sprintf("fleet:%d:%d", i, k))
			return err
		})
	}); err != nil {
		return r, err
	}
	bound.Sleep(ctx, nil, cfg.TTL/2) // from here on only renewals
	full, err := infoOf(ctx, admin)
	if err != nil {
		return r, err
	}
	began := time.Now()
	bound.Sleep(ctx, nil, cfg.Watch)
	took := time.Since(began).Seconds()
	after, err := infoOf(ctx, admin)
	if err != nil {
		return r, err
	}
	d := after.minus(full)
	r.CPU, r.Renewals, r.Reads = d.cpu()/took, d["calls_evalsha"]/took, d["total_reads_processed"]/took
	r.In, r.Out = d["total_net_input_bytes"]/took, d["total_net_output_bytes"]/took
	connections := after["connected_clients"] - empty["connected_clients"]
	r.Connections = connections / float64(cfg.Lockers)
	r.ConnectionBytes = (after["mem_clients_normal"] - empty["mem_clients_normal"]) / connections
	data := func(i info) float64 { return i["used_memory"] - i["mem_clients_normal"] }
	r.LockBytes = (data(after) - data(empty)) / float64(len(leases))
	for _, l := range leases {
		if l.Err() != nil {
			r.Lost++
		}
	}
	return r, nil
}

// A model says what renewals cost a server: so much for each, and for each read of a connection, which
// brings a batch of them.
type model struct {
	renewal, read   float64 // seconds of Redis
	in, out         float64 // bytes of a renewal
	connections     float64 // of a process
	lock, connected float64 // bytes of memory
}

// fit finds the model by two measurements, one with large batches and one with small ones.
func fit(large, small FleetResult) (m model) {
	// CPU = renewal × Renewals + read × Reads, in both.
	det := large.Renewals*small.Reads - small.Renewals*large.Reads
	m.renewal = (large.CPU*small.Reads - small.CPU*large.Reads) / det
	m.read = (large.Renewals*small.CPU - small.Renewals*large.CPU) / det
	m.in, m.out = large.In/large.Renewals, large.Out/large.Renewals
	m.connections, m.lock, m.connected = small.Connections, large.LockBytes, small.ConnectionBytes
	return m
}

// cost returns the cost of processes with so many keys each. Renewals of a process are due together in eighths of an
// interval, which is a third of the TTL. The pipeline sends them in pieces of 16 at least, and in quarters of more.
func (m model) cost(processes, keys int, ttl time.Duration) FleetResult {
	const eighths, least, quarters = 8, 16, 4
	interval := ttl.Seconds() / 3
	pieces := min((keys+eighths*least-1)/(eighths*least), quarters)
	r := FleetResult{
		Renewals: float64(processes*keys) / interval, Reads: float64(processes*min(keys, eighths)*pieces) / interval,
		Connections: m.connections, LockBytes: m.lock, ConnectionBytes: m.connected,
	}
	r.CPU = m.renewal*r.Renewals + m.read*r.Reads
	r.In, r.Out = m.in*r.Renewals, m.out*r.Renewals
	return r
}

func (r FleetResult) memory(processes, keys int) float64 {
	return r.LockBytes*float64(processes*keys) + r.ConnectionBytes*r.Connections*float64(processes)
}

const (
	fleetProcesses, fleetKeys = 10_000, 1000
	fleetTTL                  = 30 * time.Second
)

// The limits of one server.
const (
	maxClients = 10_000  // Redis's default for connections
	core       = 0.7     // of a core for renewals: the rest is for locks and unlocks, and for what is uneven
	network    = 1e9 / 8 // bytes of a second, either way
	ram        = 16e9
)

func measureFleet(ctx context.Context, cfg *config) (string, error) {
	var fitted, checked, fleet, limits table
	fitted.row("measured", "Redis CPU, a renewal", "a read", "bytes in, a renewal", "out", "connections, a process", "Redis memory, a lock", "a connection")
	checked.row("50 processes of 200 keys, TTL 12 s", "", "renewals/s", "Redis CPU, of a core", "bytes in a second", "out", "connections", "Redis memory", "lost")
	fleet.row("10,000 processes of 1,000 keys, TTL 30 s", "renewals/s", "Redis CPU, cores", "network to it", "from it", "connections", "Redis memory")
	limits.row("How many processes of 1,000 keys one server can serve, limited by", "Redis CPU (70 % of a core)", "connections (10,000)", "network (1 Gbit/s)", "memory (16 GB)", "the first limit")
	for _, s := range cfg.only {
		measure := func(f Fleet) (FleetResult, error) {
			f.Watch = max(2*f.TTL, cfg.duration)
			r, err := inProcess[FleetResult](ctx, "fleet", s, f)
			progress("fleet: %s, %+v: %+v", s, f, r)
			return r, err
		}
		large, err := measure(Fleet{Lockers: 1, Keys: 8000, TTL: 8 * time.Second})
		if err != nil {
			return "", err
		}
		small, err := measure(Fleet{Lockers: 200, Keys: 4, TTL: 8 * time.Second})
		if err != nil {
			return "", err
		}
		m := fit(large, small)
		fitted.row(s, seconds(m.renewal), seconds(m.read), count(m.in), count(m.out), fmt.Sprintf("%.2f", m.connections), bytes(m.lock), bytes(m.connected))

		const processes, keys, ttl = 50, 200, 12 * time.Second
		real, err := measure(Fleet{Lockers: processes, Keys: keys, TTL: ttl})
		if err != nil {
			return "", err
		}
		for _, of := range []struct {
			what string
			FleetResult
		}{{"the model", m.cost(processes, keys, ttl)}, {"measured", real}} {
			r := of.FleetResult
			checked.row(s, of.what, count(r.Renewals), percent(r.CPU), bytes(r.In), bytes(r.Out), count(r.Connections*processes), bytes(r.memory(processes, keys)), r.Lost)
		}
		f := m.cost(fleetProcesses, fleetKeys, fleetTTL)
		fleet.row(s, count(f.Renewals), fmt.Sprintf("%.1f", f.CPU), bits(f.In), bits(f.Out), count(f.Connections*fleetProcesses), bytes(f.memory(fleetProcesses, fleetKeys)))
		limits.row(f.limits(s)...)
	}
	return strings.Join([]string{fitted.String(), checked.String(), fleet.String(), limits.String()}, "\n"), nil
}

// limits is how many of the processes of the fleet one server bears, by each of its limits.
func (r FleetResult) limits(strategy string) []any {
	type limit struct {
		what      string
		processes float64
	}
	all := []limit{
		{"Redis CPU", fleetProcesses * core / r.CPU},
		{"connections", maxClients / r.Connections},
		{"network", fleetProcesses * network / max(r.In, r.Out)},
		{"memory", fleetProcesses * ram / r.memory(fleetProcesses, fleetKeys)},
	}
	row := []any{strategy}
	for _, l := range all {
		row = append(row, count(l.processes))
	}
	return append(row, slices.MinFunc(all, func(a, b limit) int { return cmp.Compare(a.processes, b.processes) }).what)
}

func bits(v float64) string {
	return in(8*v, []string{" Gbit/s", " Mbit/s", " kbit/s"}, []float64{1e9, 1e6, 1e3})
}
