package mysql

import "strings"

// Sweep is the statement by which releases delete old rows.
func Sweep() string {
	return ofDefault().sweep
}

var Exec = exec

// SweepAll is Sweep, but for the look at the rows' age.
func SweepAll() string {
	return strings.Replace(Sweep(), "forget < "+now, "forget < 2 * "+now, 1)
}
