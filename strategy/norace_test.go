//go:build !race

package strategy_test

const costSlack = 1.0
