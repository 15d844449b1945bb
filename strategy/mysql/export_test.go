package mysql

import "strings"

// SweepAll is the statement by which releases delete old rows, but for the look at their age.
func SweepAll() string {
	sql, _ := newStatements(defaultTable)
	return strings.Replace(sql.sweep, "forget < "+now, "forget < 2 * "+now, 1)
}
