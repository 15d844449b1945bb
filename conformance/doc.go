// Package conformance is the test suite for strategies of package locker. Every strategy of
// this module passes it, and you can run it on a strategy of your own. It checks the promise of
// a [locker.Locker], on a real store, by what callers can see.
//
// The author of a driver runs the suite by one line of code and a [DriverHarness]. The harness makes
// drivers over one store, as separate processes would have them:
//
//	type harness struct{ store *mystore.Store }
//
//	func newHarness(tb testing.TB) conformance.DriverHarness { return harness{mystore.New()} }
//
//	func (h harness) NewDriver() (driver.Driver, error) { return mystore.NewDriver(h.store), nil }
//
//	func (harness) Capabilities() conformance.Capabilities {
//		return conformance.Capabilities{Name: "mystore", Fencing: true}
//	}
//
//	func TestConformance(t *testing.T) { conformance.Run(t, conformance.OfDriver(newHarness)) }
//
// The suite then checks what can be seen through the Lockers alone. An [Injector] around the drivers loses, delays and
// repeats commands and replies, and cuts off the store. A harness that can also look into its store, break locks, kill
// servers or start processes implements [Inspector], [Breaker], [ServerFaults] and so on, and gets the cases that need
// it. If a harness is [Wired], the suite puts a proxy between its drivers and its store. docs/driver.md goes through it
// step by step. A strategy whose Lockers do not come from a driver implements
// [Harness], and claims each of these abilities in its [Capabilities]. [TroubleCases] are for troubles that
// only this store's servers know.
//
// Run prints a table, which go test shows with -v. The table names every case that was left
// out, and why. A case fails if it needs a claim that the harness makes and cannot keep.
//
// # What a pass shows
//
//   - The rules of the promise (docs/rules.md) held in every case, with real concurrency. With
//     Faults, ServerFaults and child processes they also held with lost and repeated
//     commands, outages, servers in trouble, killed and frozen processes.
//   - Histories of concurrent operations are checked for an order that explains
//     them, by [porcupine].
//   - The suite itself is tested: more than a hundred strategies that are broken on purpose
//     fail the cases that are meant for them.
//
// # What it does not show
//
//   - That there is no error: a race that shows once in a million runs may not
//     have shown. Run the suite with the race detector, often, on a busy machine.
//   - Anything about the store itself: that it keeps what it acknowledged, or
//     fails over without losing locks.
//   - Anything about how strategies behave towards one another on the same keys,
//     or about properties of one store, such as cluster slots. Cases for these
//     come in by [WithCases].
//   - How fast it is. Bounds are those of the promise with ample slack; they live
//     in [Timing], never in a case, and are longer while the machine is slow.
//
// A store that speaks Redis's protocol gets most of Faults and ServerFaults from
// package [faultproxy].
//
// # Rules for cases
//
// Cases wait for events with a bound, not for a time to pass; where time passing
// is the subject they say so. A case learns by [locker.EventWaiting] that a Lock waits.
// So every Locker of a case has the suite's observer, and neither a harness nor a case
// sets another observer.
//
// Upper bounds, such as those of Ends and Eventually, are counted on a clock that
// slows down with the machine; lower bounds are real time. Leases that must not
// be lost last two seconds at least, and longer on a slow machine. Keys are unique
// to a case and a run, so that parallel cases can share a store, and a store can
// outlive the run.
//
// [faultproxy]: https://pkg.go.dev/github.com/distlock/locker/conformance/faultproxy
// [porcupine]: https://pkg.go.dev/github.com/anishathalye/porcupine
package conformance
