package soak

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Past is a run that was recorded, for docs/verification.md.
type Past struct {
	Date, Commit string
	Seed         uint64 // of the first round; each round has one more
	Flags        string `json:",omitempty"` // those of Config.again; "": the run was before they were recorded
	Rounds       int
	Seconds      int
	Operations   int
	Steps        int `json:",omitempty"` // of the model, by which the records were replayed; 0: the run was before the replay
	Faults       int // how many were caused
	Regranted    int
	Stale        int
	Violations   int
	On           []string // "strategy on topology"
}

// past returns the report of a run that has just ended.
func (r *Report) past() Past {
	p := Past{
		Date: time.Now().UTC().Format(time.DateOnly), Seed: r.Seed, Flags: r.Flags, Rounds: r.Rounds,
		Seconds: int(time.Since(r.began).Seconds()), Operations: r.Operations(),
	}
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		p.Commit = strings.TrimSpace(string(out))
	}
	for _, n := range r.Faults {
		p.Faults += n
	}
	for _, row := range r.Rows {
		p.Steps += row.Count[Steps]
		p.Regranted += row.Count[Regranted]
		p.Stale += row.Count[Stale]
		p.Violations += row.Count[Violations]
		p.On = append(p.On, row.Strategy+" on "+string(row.Topology))
	}
	return p
}

// Runs returns what was recorded in a file, which need not be there.
func Runs(file string) (all []Past, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// recordIn adds the run to a file of runs.
func (r *Report) recordIn(file string) error {
	all, err := Runs(file)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(append(all, r.past()), "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Where names the servers: Redis with its topologies, or those of another store.
func (p Past) Where() string {
	var redis, others []string
	for _, on := range p.On {
		_, topology, _ := strings.Cut(on, " on ")
		to := &others
		if slices.Contains(Topologies(), Topology(topology)) {
			to = &redis
		}
		if !slices.Contains(*to, topology) {
			*to = append(*to, topology)
		}
	}
	if len(redis) > 0 {
		others = append([]string{"Redis: " + strings.Join(redis, ", ")}, others...)
	}
	return strings.Join(others, "; ")
}

// Minutes is how long the run took.
func (p Past) Minutes() int { return (p.Seconds + 30) / 60 }
