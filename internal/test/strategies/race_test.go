//go:build race

package strategies

// Under the race detector sync.Pool drops things, to show what depends on them.
const costSlack = 1.3
