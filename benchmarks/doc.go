// Package benchmarks measures what locking costs: in commands and round trips,
// which do not depend on the machine, and in time, which does. `make bench` runs
// them; compare times only within one run.
package benchmarks
