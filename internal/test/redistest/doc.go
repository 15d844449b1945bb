// Package redistest starts real redis-server processes for tests.
//
// A lock is only as good as the server's behaviour under load, restarts and
// stalls, so tests run against the real thing and never skip when it is
// missing. Each server listens on a free port of 127.0.0.1 and on a unix
// socket, keeps its files in a directory of its own, and dies with the test
// process, whatever ends that: a normal return, a panic, os.Exit, a test
// timeout or kill -9.
//
// [Start] gives a test a server for itself, which it may kill, pause and
// restart. [Shared] is one server for all tests of a binary: cheaper, and to be
// left running. [StartCluster] and [StartSentinel] start several that belong
// together, and can make them fail over and move their slots; [BorrowCluster] and
// [BorrowSentinel] start them less often.
package redistest
