package conformance

import "iter"

// RunsOn reports whether h claims what the case needs.
func (c Case) RunsOn(h Harness) bool { return c.unmet(h) == "" }

// NeedsUpgrade reports whether the harness has to be something for the case.
func (c Case) NeedsUpgrade() bool {
	for field := range claims(c.Needs) {
		if upgrades[field] != nil {
			return true
		}
	}
	return false
}

// Claims goes through the claims without which the case does not run.
func (c Case) Claims() iter.Seq[string] { return claims(c.Needs) }

// Path is the case's name in reports.
func (c Case) Path() string { return c.path() }

// ParallelOn returns how many cases [Main] lets run at the same time on so many processors.
func ParallelOn(processors int) int { return parallelOn(processors) }
