//go:build !race

package strategies

const costSlack = 1.0
