// Package simulation plays Lockers on a store in memory in virtual time, with faults, and
// checks what every caller saw.
//
// [Play] runs one history: some Lockers on one store, some callers of each, and a nemesis that
// loses, repeats and delays commands, refuses connections, breaks locks and closes Lockers. A
// seed decides everything that is drawn: the driver, the options, what each caller does
// and when, each command's time on the way, each fault. A minute of such a history takes some milliseconds.
//
// # What a seed does not fix
//
// Time is virtual, so that what happens at different instants happens in their order, on
// every machine. What happens at the same instant is left to Go's scheduler: which of the
// goroutines that are ready runs first, where one is preempted, which ready case a select takes,
// the order of a map's elements. The engine's own jitter (pauses between polls and tries) comes from
// a source of chance that no seed reaches. So a seed that has failed once may need several
// tries to fail again: the test repeats a given seed, and says how often it failed.
package simulation
