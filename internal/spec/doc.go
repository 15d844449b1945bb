// Package spec is the locks of this library as executable specifications.
//
//   - claim.go: the life of a claim. Processes ask, renew, hand over, keep and release; commands are lost,
//     late or repeated, replies are lost, leases expire, operators break locks, callers give up.
//   - quorum.go: the token of a lock on several nodes, and what a process whose clock has stood still
//     does to it: exclusion does not survive that, tokens do.
//   - trace.go: what of the life of a claim can be seen from outside. It replays the record of a run on locks.
//
// Each model is a struct for its state, a function that lists the steps, and promises. The tests go
// through all states (package explore), and plant mistakes that have to be found.
//
// A model says whether a protocol is sound. Whether the code follows it is for the suite, the
// simulation, and the replay of what a soak has recorded.
package spec
