package conformance

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
