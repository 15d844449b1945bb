package soak

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestChecker: what happened, and which violations that is.
func TestChecker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script script
		events []event
		frozen []span // p0
		killed int    // p0, 0: not
		nodes  int
		claims Strategy
		want   []Kind
	}{
		"one after the other": {script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
			lock(1, 2, 2, 0), granted(1, 7, 2, 11, 300), unlock(1, 9, 2, 300), unlocked(1, 10, 2, resOK),
		}},
		"the reply to Unlock comes after the next grant": {script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 50, 1, resOK),
			lock(1, 2, 2, 0), granted(1, 7, 2, 11, 300), unlock(1, 9, 2, 300), unlocked(1, 10, 2, resOK),
		}},
		"granted beside a holder": {want: []Kind{NoOrder, Overlap}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 50, 1, 298), unlocked(0, 51, 1, resOK),
			lock(1, 2, 2, 0), granted(1, 7, 2, 11, 300), unlock(1, 9, 2, 300), unlocked(1, 10, 2, resOK),
		}},
		"granted before the deadline of a killed holder": {killed: 200, want: []Kind{NoOrder, Overlap}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298),
			lock(1, 2, 2, 0), granted(1, 100, 2, 11, 400), unlock(1, 109, 2, 400), unlocked(1, 110, 2, resOK),
		}},
		"granted after the deadline": {script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), lostSeen(0, 300, 1, 298), unlock(0, 400, 1, 298), unlocked(0, 401, 1, resLost),
			lock(1, 2, 2, 0), granted(1, 302, 2, 11, 600), unlock(1, 309, 2, 600), unlocked(1, 310, 2, resOK),
		}},
		"granted after the data was lost": {events: []event{{fault: fault("flush"), span: during(10, 11), loses: true}}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), lostSeen(0, 100, 1, 298), unlock(0, 101, 1, 298), unlocked(0, 102, 1, resLost),
			lock(1, 2, 2, 0), granted(1, 12, 2, 11, 300), unlock(1, 209, 2, 300), unlocked(1, 210, 2, resOK),
		}},
		"renewed after the data was lost": {events: []event{{fault: fault("flush"), span: during(10, 11), loses: true}}, want: []Kind{LateLoss}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 500, 1, 700), unlocked(0, 501, 1, resLost),
			lock(1, 2, 2, 0), granted(1, 12, 2, 11, 300), unlock(1, 209, 2, 300), unlocked(1, 210, 2, resOK),
		}},
		"granted before the data was lost, and told so after others": {events: []event{{fault: fault("flush"), span: during(10, 11), loses: true}}, script: script{
			lock(0, 0, 1, 0), granted(0, 40, 1, 10, 298), unlock(0, 41, 1, 298), unlocked(0, 42, 1, resLost),
			lock(1, 2, 2, 0), granted(1, 12, 2, 11, 300), unlock(1, 13, 2, 300), unlocked(1, 14, 2, resOK),
			lock(1, 20, 3, 0), granted(1, 21, 3, 12, 310), unlock(1, 45, 3, 310), unlocked(1, 46, 3, resOK),
		}},
		"joined after the data was lost": {events: []event{{fault: fault("flush"), span: during(10, 11), loses: true}}, script: script{
			of(1, lock(0, 0, 1, 0)), granted(0, 1, 1, 10, 298), of(2, lock(1, 2, 2, 0)), granted(1, 12, 2, 11, 300),
			of(1, lock(0, 15, 3, 0)), granted(0, 16, 3, 10, 298), lostSeen(0, 100, 3, 298), unlock(0, 101, 3, 298), unlocked(0, 102, 3, resLost),
			unlock(0, 103, 1, 298), unlocked(0, 104, 1, resLost), unlock(1, 107, 2, 300), unlocked(1, 108, 2, resOK),
		}},
		"a smaller token": {want: []Kind{NoOrder, TokenOrder}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
			lock(1, 2, 2, 0), granted(1, 7, 2, 9, 300), unlock(1, 9, 2, 300), unlocked(1, 10, 2, resOK),
		}},
		"a team shares a hold": {claims: Strategy{StoredHolds: true}, script: script{
			of(1, lock(0, 0, 1, 0)), granted(0, 1, 1, 10, 298), of(1, lock(1, 2, 2, 0)), granted(1, 3, 2, 10, 300),
			unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK), unlock(1, 7, 2, 300), unlocked(1, 8, 2, resOK),
		}},
		"a team holds twice": {want: []Kind{Overlap}, script: script{
			of(1, lock(0, 0, 1, 0)), granted(0, 1, 1, 10, 298), of(1, lock(1, 2, 2, 0)), granted(1, 3, 2, 11, 300),
			unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK), unlock(1, 7, 2, 300), unlocked(1, 8, 2, resOK),
		}},
		"two teams": {want: []Kind{Overlap, TokenOrder}, script: script{
			of(1, lock(0, 0, 1, 0)), granted(0, 1, 1, 10, 298), of(2, lock(1, 2, 2, 0)), granted(1, 3, 2, 10, 300),
			unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK), unlock(1, 7, 2, 300), unlocked(1, 8, 2, resOK),
		}},
		"another token on re-entry": {want: []Kind{TokenOrder}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), lock(0, 2, 1, flagInner),
			{0, 3, record{kind: recGranted, flags: flagInner, op: 1, caller: 1, token: 11, deadline: ms(298)}},
			unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
		}},
		"held after the deadline": {want: []Kind{Outlived}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), asked(0, 298, 1, 298, flagYes), unlock(0, 299, 1, 298), unlocked(0, 300, 1, resLost),
		}},
		"told by the first question after a freeze": {frozen: []span{during(10, 9000)}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), asked(0, 9000, 1, 298, 0), lostSeen(0, 9001, 1, 298), unlock(0, 9002, 1, 298), unlocked(0, 9003, 1, resLost),
		}},
		"frozen on the way out of Lock": {frozen: []span{during(2, 2000)}, script: script{
			lock(0, 0, 1, 0), lock(1, 500, 2, 0), granted(1, 501, 2, 11, 800), unlock(1, 510, 2, 800), unlocked(1, 511, 2, resOK),
			granted(0, 2001, 1, 10, 298), asked(0, 2002, 1, 298, 0), lostSeen(0, 2003, 1, 298), unlock(0, 2004, 1, 298), unlocked(0, 2005, 1, resLost),
		}},
		"granted late with no freeze": {want: []Kind{LateLoss, Outlived}, script: script{
			lock(0, 0, 1, 0), granted(0, 2500, 1, 10, 298), asked(0, 2502, 1, 298, 0), lostSeen(0, 2503, 1, 298), unlock(0, 2504, 1, 298), unlocked(0, 2505, 1, resLost),
		}},
		"not told by the first question after a freeze": {frozen: []span{during(10, 9000)}, want: []Kind{Outlived}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), asked(0, 9000, 1, 298, flagYes), lostSeen(0, 9001, 1, 298), unlock(0, 9002, 1, 298), unlocked(0, 9003, 1, resLost),
		}},
		"lost too early": {want: []Kind{FalseLoss}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), lostSeen(0, 200, 1, 298), unlock(0, 500, 1, 298), unlocked(0, 501, 1, resLost),
		}},
		"told late": {want: []Kind{LateLoss}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), lostSeen(0, 2400, 1, 298), unlock(0, 2401, 1, 298), unlocked(0, 2402, 1, resLost),
		}},
		"held though the resource has seen a greater token": {want: []Kind{Overlap}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), written(0, 5, 1, 10, 0), asked(0, 6, 1, 298, flagYes), unlock(0, 7, 1, 298), unlocked(0, 8, 1, resOK),
		}},
		"a free lock is not taken": {want: []Kind{Stall}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
			lock(1, 2, 2, 0), refused(1, 2002, 2, 0, resNotAcquired), lock(1, 1900, 3, 0), refused(1, 3900, 3, 0, resNotAcquired),
		}},
		"a free lock is not taken while the server is away": {events: []event{{fault: fault("refuse"), span: during(1000, 1100)}}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
			lock(1, 2, 2, 0), refused(1, 2002, 2, 0, resNotAcquired), lock(1, 1900, 3, 0), refused(1, 3900, 3, 0, resNotAcquired),
		}},
		"what a dead holder had is not taken": {killed: 5, want: []Kind{Stall}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298),
			lock(1, 2, 2, 0), refused(1, 2002, 2, 0, resNotAcquired), lock(1, 1900, 3, 0), refused(1, 3900, 3, 0, resNotAcquired), lock(1, 3800, 4, 0), refused(1, 5800, 4, 0, resNotAcquired),
		}},
		"what a dead member of a team shares is lengthened by the others": {killed: 5, claims: Strategy{StoredHolds: true}, script: script{
			of(1, lock(0, 0, 1, 0)), granted(0, 1, 1, 10, 298),
			of(1, lock(1, 200, 2, 0)), granted(1, 201, 2, 10, 500), unlock(1, 202, 2, 500), unlocked(1, 203, 2, resOK),
			of(1, lock(1, 490, 3, 0)), granted(1, 491, 3, 10, 790), unlock(1, 492, 3, 790), unlocked(1, 493, 3, resOK),
			of(2, lock(1, 500, 4, 0)), refused(1, 2500, 4, 0, resNotAcquired), of(2, lock(1, 2400, 5, 0)), granted(1, 4500, 5, 11, 4700), unlock(1, 4501, 5, 4700), unlocked(1, 4502, 5, resOK),
		}},
		"nobody waits for what a dead holder had": {killed: 5, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298),
			lock(1, 2, 2, 0), refused(1, 2002, 2, 0, resNotAcquired), lock(1, 9000, 3, 0), granted(1, 9001, 3, 11, 9298), unlock(1, 9005, 3, 9298), unlocked(1, 9006, 3, resOK),
		}},
		"refused though nobody holds": {want: []Kind{NoOrder}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
			lock(1, 8, 2, flagTry), refused(1, 9, 2, flagTry, resNotAcquired),
		}},
		"refused though nobody holds, by a quorum": {nodes: 3, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
			lock(1, 8, 2, flagTry), refused(1, 9, 2, flagTry, resNotAcquired),
		}},
		"refused for what a lease that is over has left": {script: script{
			lock(0, 0, 1, 0), granted(0, 200, 1, 10, 298), unlock(0, 299, 1, 298), unlocked(0, 300, 1, resLost),
			lock(0, 310, 2, flagTry), refused(0, 311, 2, flagTry, resNotAcquired),
		}},
		"refused while a holder unlocks": {script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 8, 1, resOK),
			lock(1, 6, 2, flagTry), refused(1, 7, 2, flagTry, resNotAcquired),
		}},
		"refused while an Unlock that was applied is not yet answered": {script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298),
			lock(1, 6, 2, 0), granted(1, 7, 2, 11, 300), unlock(1, 8, 2, 300), unlocked(1, 9, 2, resOK),
			lock(0, 10, 3, flagTry), refused(0, 11, 3, flagTry, resNotAcquired), unlocked(0, 12, 1, resOK),
		}},
		"Unlock says that the lock was lost, but it was held": {want: []Kind{FalseLoss, NoOrder}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resLost),
			lock(1, 8, 2, 0), granted(1, 9, 2, 11, 300), unlock(1, 10, 2, 300), unlocked(1, 11, 2, resOK),
		}},
		"the release arrived twice": {events: []event{{fault: fault("duplicate"), span: during(0, 100)}}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resLost),
			lock(1, 8, 2, 0), granted(1, 9, 2, 11, 300), unlock(1, 10, 2, 300), unlocked(1, 11, 2, resOK),
		}},
		"unlocked twice": {want: []Kind{WrongAnswer}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK), unlock(0, 7, 1, 0), unlocked(0, 8, 1, resOK),
		}},
		"nobody knows of the release": {script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 160, 1, resUnavailable),
			lock(1, 8, 2, 0), granted(1, 100, 2, 11, 400), unlock(1, 110, 2, 400), unlocked(1, 111, 2, resOK),
		}},
		"an error out of place": {want: []Kind{Unexpected}, script: script{
			lock(0, 0, 1, 0), refused(0, 1, 1, 0, resOther),
		}},
		"gives up early": {want: []Kind{WrongAnswer}, script: script{
			lock(0, 0, 1, 0), refused(0, 1999, 1, 0, resNotAcquired), lock(0, 2000, 2, 0), refused(0, 4000, 2, 0, resNotAcquired),
		}},
		"unavailable for no reason": {want: []Kind{Unavailable}, script: script{
			lock(0, 0, 1, flagTry), refused(0, 1, 1, flagTry, resUnavailable),
		}},
		"unavailable, a busy machine being the reason perhaps": {script: script{
			lock(0, 0, 1, flagTry), refused(0, 300, 1, flagTry, resUnavailable),
		}},
		"unavailable while the server is away": {events: []event{{fault: fault("refuse"), span: during(0, 1)}}, script: script{
			lock(0, 0, 1, flagTry), refused(0, 1, 1, flagTry, resUnavailable),
		}},
		"held on for longer than its limit": {want: []Kind{Outlived}, script: script{
			lock(0, 0, 1, flagLimited), limited(200, granted(0, 1, 1, 10, 298)), asked(0, 200, 1, 298, flagYes), asked(0, 201, 1, 298, flagYes), unlock(0, 203, 1, 298), unlocked(0, 204, 1, resOK),
		}},
		"kept out of its own lock":              {want: []Kind{WrongAnswer}, script: keptOut(6)},
		"kept out of its own lock now and then": {script: keptOut(5)},
		"kept out of its own lock by a freeze":  {frozen: []span{during(3, 99)}, script: keptOut(6)},
		"not renewed":                           {want: []Kind{FalseLoss}, script: slices.Concat(outlasting(0, 1), outlasting(400, 2), outlasting(800, 3), outlasting(1200, 4), outlasting(1600, 5), outlasting(2000, 6))},
		"not renewed now and then":              {script: slices.Concat(outlasting(0, 1), outlasting(400, 2), outlasting(800, 3), outlasting(1200, 4), outlasting(1600, 5))},
		"not renewed, the server being away": {events: []event{{fault: fault("refuse"), span: during(0, 2400)}},
			script: slices.Concat(outlasting(0, 1), outlasting(400, 2), outlasting(800, 3), outlasting(1200, 4), outlasting(1600, 5), outlasting(2000, 6))},
		"a team shares a hold that is not in the store": {want: []Kind{Overlap, TokenOrder}, script: script{
			of(1, lock(0, 0, 1, 0)), granted(0, 1, 1, 10, 298), of(1, lock(1, 2, 2, 0)), granted(1, 3, 2, 10, 300),
			unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK), unlock(1, 7, 2, 300), unlocked(1, 8, 2, resOK),
		}},
		"a team is kept out of its own lock": {claims: Strategy{StoredHolds: true}, want: []Kind{WrongAnswer}, script: script{
			of(1, lock(0, 0, 1, 0)), granted(0, 1, 1, 10, 298), of(1, lock(1, 2, 2, flagTry)), refused(1, 3, 2, flagTry, resNotAcquired),
			unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
		}},
		"a team is behind others of its process": {claims: Strategy{StoredHolds: true}, script: script{
			of(1, lock(0, 0, 1, 0)), granted(0, 1, 1, 10, 298), of(2, lock(1, 1, 3, 0)), of(1, lock(1, 2, 2, flagTry)), refused(1, 3, 2, flagTry, resNotAcquired),
			unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK), granted(1, 7, 3, 11, 305), unlock(1, 8, 3, 305), unlocked(1, 9, 3, resOK),
		}},
		"no token": {want: []Kind{TokenOrder}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 0, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
		}},
		"no token, as was asked for": {script: script{
			lock(0, 0, 1, flagUnfenced), unfenced(granted(0, 1, 1, 0, 298)), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
			lock(0, 7, 2, 0), granted(0, 8, 2, 10, 298), unlock(0, 9, 2, 298), unlocked(0, 10, 2, resOK),
			lock(1, 11, 3, flagUnfenced), unfenced(granted(1, 12, 3, 0, 298)), unlock(1, 13, 3, 298), unlocked(1, 14, 3, resOK),
			lock(1, 15, 4, 0), granted(1, 16, 4, 11, 298), unlock(1, 17, 4, 298), unlocked(1, 18, 4, resOK),
		}},
		"a token nobody asked for": {want: []Kind{TokenOrder}, script: script{
			lock(0, 0, 1, flagUnfenced), unfenced(granted(0, 1, 1, 10, 298)), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
		}},
		"a token of a strategy that has none": {claims: Strategy{Unfenced: true}, want: []Kind{TokenOrder}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
		}},
		"a token that not everybody can read": {want: []Kind{TokenOrder}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 1<<53+1, 298), unlock(0, 5, 1, 298), unlocked(0, 6, 1, resOK),
		}},
		"closed": {script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), closing(0, 5, recClose), closing(0, 6, recClosed), unlock(0, 7, 1, 298), unlocked(0, 20, 1, resOK),
			lock(1, 8, 2, 0), granted(1, 19, 2, 11, 300), unlock(1, 25, 2, 300), unlocked(1, 26, 2, resOK),
		}},
		"closed in no time that is promised": {want: []Kind{Slow}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), closing(0, 5, recClose), closing(0, 7100, recClosed), unlock(0, 7101, 1, 298), unlocked(0, 7102, 1, resLost),
		}},
		"something is wrong": {want: []Kind{WrongAnswer}, script: script{closing(0, 5, recWrong)}},
		"the release finds the store unavailable for no reason": {want: []Kind{Unavailable}, script: script{
			lock(0, 0, 1, 0), granted(0, 1, 1, 10, 298), unlock(0, 5, 1, 298), unlocked(0, 8, 1, resUnavailable),
		}},
		"out of memory, and said so": {events: []event{{fault: fault("full"), span: during(0, 9)}}, script: script{
			lock(0, 1, 1, flagTry), refused(0, 2, 1, flagTry, resFull), lock(0, 3, 2, 0), refused(0, 4, 2, 0, resFull),
		}},
		"out of memory, and not said so": {events: []event{{fault: fault("full"), span: during(0, 9)}}, want: []Kind{WrongAnswer}, script: script{
			lock(0, 1, 1, flagTry), refused(0, 2, 1, flagTry, resUnavailable),
		}},
		"out of memory, after something else": {events: []event{{fault: fault("reset"), span: during(-9, -8)}, {fault: fault("full"), span: during(0, 9)}}, script: script{
			lock(0, 1, 1, flagTry), refused(0, 2, 1, flagTry, resUnavailable),
		}},
		"said to be out of memory, and was not": {want: []Kind{Unavailable}, script: script{
			lock(0, 1, 1, flagTry), refused(0, 2, 1, flagTry, resFull),
		}},
		"waited for memory": {events: []event{{fault: fault("full"), span: during(0, 9000)}}, want: []Kind{Slow}, script: script{
			patiently(lock(0, 1, 1, 0)), refused(0, 5001, 1, 0, resUnavailable),
		}},
		"waited for a holder while the server was out of memory": {events: []event{{fault: fault("full"), span: during(2, 9000)}}, script: script{
			lock(1, 0, 2, 0), granted(1, 1, 2, 10, 6000), patiently(lock(0, 2, 1, 0)), refused(0, 5002, 1, 0, resNotAcquired), unlock(1, 5003, 2, 6000), unlocked(1, 5004, 2, resOK),
		}},
		"what is there is no lock": {events: []event{{fault: fault("foreign"), span: during(0, 9000), key: new(uint16)}}, script: script{
			lock(0, 1, 1, flagTry), refused(0, 2, 1, flagTry, resConflict),
			lock(0, 3, 2, 0), refused(0, 2999, 2, 0, resConflict), lock(0, 2990, 3, 0), refused(0, 5990, 3, 0, resConflict),
		}},
		"what is there is a lock": {want: []Kind{Unexpected}, script: script{
			lock(0, 1, 1, flagTry), refused(0, 2, 1, flagTry, resConflict),
		}},
		"waited for what is no lock": {events: []event{{fault: fault("foreign"), span: during(0, 9000), key: new(uint16)}}, want: []Kind{WrongAnswer}, script: script{
			patiently(lock(0, 1, 1, 0)), refused(0, 5001, 1, 0, resNotAcquired),
		}},
		"overtaken":                {claims: Strategy{Fair: true}, want: []Kind{Unfair}, script: overtaking(6, 3, 2)},
		"overtaken now and then":   {claims: Strategy{Fair: true}, script: overtaking(5, 3, 2)},
		"handed over inside":       {claims: Strategy{Fair: true}, script: overtaking(6, 3, 1)},
		"in turn":                  {claims: Strategy{Fair: true}, script: overtaking(6, 2, 2)},
		"no turns are claimed":     {script: overtaking(6, 3, 2)},
		"releases are not noticed": {claims: Strategy{Notified: true}, want: []Kind{Stall}, script: unnoticed(6, 501)},
		"releases are noticed":     {claims: Strategy{Notified: true}, script: unnoticed(6, 499)},
		"wake-ups are lost":        {claims: Strategy{Notified: true}, script: unnoticed(6, 501), events: []event{{fault: fault("lose-messages"), span: during(0, 6000)}}},
		"no wake-ups are claimed":  {script: unnoticed(6, 501)},
		"a wait that does not end": {want: []Kind{Slow}, script: script{
			lock(0, 0, 1, 0), refused(0, 4100, 1, 0, resNotAcquired),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The answer does not depend on where the history is cut.
			for _, holds := range []int{1, 100} {
				claims := c.claims
				claims.Name, claims.Nodes = "s", c.nodes
				h := newHistory(Config{TTLs: []time.Duration{300 * time.Millisecond}, Slack: 2 * time.Second}, claims, c.events, ms(0))
				h.windowHolds = holds
				for i, p := range c.script.processes(t) {
					if i == 0 {
						p.frozen = c.frozen
						if c.killed > 0 {
							p.killed = ms(c.killed)
						}
					}
					if err := h.read(p); err != nil {
						t.Fatal(err)
					}
				}
				h.check()
				if got := slices.Sorted(maps.Keys(h.stats.Found)); !slices.Equal(got, c.want) {
					t.Errorf("found %v, want %v: %v", got, c.want, h.violations)
				}
			}
		})
	}
}

// processes writes the logs.
func (s script) processes(t *testing.T) []*process {
	t.Helper()
	var all []*process
	for proc := range 2 {
		path := filepath.Join(t.TempDir(), "log")
		log, err := createLog(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range s {
			if step.proc == proc {
				step.rec.at = ms(step.at)
				log.add(step.rec)
			}
		}
		all = append(all, &process{name: fmt.Sprint("p", proc), index: proc, spec: workerSpec{Log: path}})
	}
	return all
}

// TestRecordSurvives: what is written is read again, and half a record at the end of
// a log is left out.
func TestRecordSurvives(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	log, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	want := record{recGranted, flagTry | flagYes, resLost, 2, 3, 4, 5, 6, 7, 8, -9, 10}
	log.add(want)
	if _, err := log.f.WriteString(strings.Repeat("x", recordSize/2)); err != nil {
		t.Fatal(err)
	}
	var got []record
	if err := readLog(path, func(r record) { got = append(got, r) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("read %v, want %v", got, want)
	}
}
