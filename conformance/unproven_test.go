package conformance_test

import "github.com/distlock/locker/internal/test/soak"

// soakedFor is what the soak looks for, by the rule that it would break.
var soakedFor = map[string][]soak.Kind{
	"R1":  {soak.Overlap},
	"R2":  {soak.Overlap, soak.LateLoss},
	"R4":  {soak.Overlap},
	"R9":  {soak.Overlap, soak.LateLoss},
	"R10": {soak.LateLoss},
	"R11": {soak.LateLoss, soak.Unexpected},
	"R15": {soak.Stall},
	"R17": {soak.Stall, soak.Unexpected},
	"R19": {soak.Overlap, soak.Stall},
	"R21": {soak.TokenOrder},
	"R22": {soak.Overlap},
	"R28": {soak.Overlap, soak.Leak},
}

// besides are tests outside the suite that are about a rule: a directory, and a test in it.
var besides = map[string][]string{
	"R1": {"strategy/redlock: TestTokenProtocol", "strategy/redlock: TestConformanceWhileNodesFail", "strategy/redlock: TestConformanceWhileClocksMove", ".: TestChaos",
		"internal/spec: TestClaims", "internal/spec: TestQuorum", "internal/test/simulation: TestSimulation"},
	"R2":  {"internal/spec: TestClaims"},
	"R3":  {"internal/test/simulation: TestSimulation"},
	"R4":  {"internal/spec: TestClaimMistakes", "internal/test/simulation: TestSimulation"},
	"R8":  {"strategy/hashreentrant: TestExplicitOwnerAcrossLockers"},
	"R9":  {"strategy/redlock: TestConformanceWithoutClocks", "internal/spec: TestClaimMistakes"},
	"R10": {"internal/test/simulation: TestSimulation"},
	"R12": {"internal/test/simulation: TestSimulation"},
	"R13": {"internal/spec: TestClaimMistakes", "internal/test/simulation: TestSimulation"},
	"R14": {"internal/test/simulation: TestSimulation"},
	"R15": {"internal/test/simulation: TestSimulation"},
	"R18": {"internal/test/strategies: TestFullServer"},
	"R21": {"strategy/redlock: TestTokenProtocol", "strategy/redlock: TestExplorerFindsMistakes", "internal/spec: TestClaims", "internal/spec: TestQuorum", "internal/test/simulation: TestSimulation"},
	"R22": {"internal/test/strategies: TestStrategiesMix", "strategy/hashreentrant: TestJavaIsExcludedAndWoken", "strategy/hashreentrant: TestJavaExcludesAndWakes", "strategy/redlock: TestExcludesRedsyncAndIsExcluded"},
	"R23": {"strategy/redlock: TestConflicts"},
}

// unproven is what no test shows, by rule.
var unproven = map[string]string{
	"R1": "A store that forgets what it acknowledged (a failover that loses writes, an emptied server, a clock set ahead) lets two owners in: faults.md lists each case. " +
		"The runs may have missed a rare race. strategy/etcd counts on etcd's behaviour in elections, as decision 0020 describes it.",
	"R2":  "That a script, a statement or a transaction of the store is atomic is taken from its manual.",
	"R3":  "Schedules of goroutines are samples: the race detector and many runs, no search of all of them.",
	"R4":  "That two random UUIDs differ.",
	"R5":  "If a caller passes the context of one section to another section, both share its locks: no test can see that. No case causes a fault.",
	"R6":  "Nothing beyond the schedules of R3.",
	"R7":  "Nothing beyond the schedules of R3.",
	"R8":  "Redisson's commands are sent as its Java client sends them, from versions 3.15 to 4.x by their source: no Java client runs in the tests.",
	"R9":  "A machine that is suspended: its monotonic clock stands still. Clocks that drift by more than 1 %.",
	"R10": "A section that does not look at its context runs on. The time until Lost closes is that of a process that runs: a process that gets no processor learns of the loss when it gets one.",
	"R11": "Renewal under a store that is slower than the TTL ends in a loss, as promised: how slow a store may be is measured by locker compare, not proven.",
	"R12": "That the time left is enough for the caller to roll back. No case causes a fault, and no soak uses limits.",
	"R13": "No test has a cluster of more than three masters.",
	"R14": "Order among processes is shown for strategies that claim it, and for no other. The 300 ms bound is measured with slack for busy machines. No case checks the order while 512 attempts of redlock are under way. No case causes a fault.",
	"R15": "The bounds have slack for busy machines: a case allows 4 s, the soak 1.5 s and 2 s more. " +
		"A store whose commands take as long as the TTL grants a free lock late, or not at all: no test bounds that. " +
		"Soaks with 4 callers on two cores had stalls of 3.5 s to 4.8 s until 28 November 2026. faults.md has what logs of later runs show; the stalls of fc5210d and 19998a7-dirty were not traced. " +
		"Six runs of 10,000,000 operations with 4 callers have none (cf6ebb4, bb50f7a, fe51133, 2038cb0, 250ae34, 33e426f), with the servers first in line for the processors: what happens when they get none is not soaked. " +
		"Two runs beside compilers had stalls of 3.6 s (5e1ad69), and of 3.6 s and 4.1 s (29 November 2026, seed 20261131). " +
		"A run that began 17 minutes after the start of the machine had a stall of 4.6 s in its first round, which had a third fewer operations than the rounds of the run after it (33e426f, seed 20261131 again, blpop with WithReplicaAcks). " +
		"No run that is known to have had 8 callers has passed on two cores. " +
		"One soak (seed 99), on a machine with a load of 30, had two stalls of 3.7 s and 4.3 s: their cause was not looked for.",
	"R16": "Tens of milliseconds are measured as a median; a machine that is busy is slower.",
	"R17": "Servers that compatibility.md does not list may send other errors. On Redis an unknown error reply counts as permanent trouble; with postgres, mysql and etcd an unknown error counts as transient.",
	"R18": "The cases have thousands of goroutines and a delay of 20 ms. By hand redlock was tried with up to 12,000 callers and 200 ms (decision 0014). Hundreds of thousands were not tried.",
	"R19": "Each command is lost, late or repeated once or twice in a case and at random in the soak; not in every combination.",
	"R20": "The 5 s under a context that has ended are measured with slack, and by cases only: the soak calls Unlock under contexts that are alive.",
	"R21": "A store that loses its data and sets its clock back behind the last token may repeat tokens. Whether the resource checks the token is up to the resource.",
	"R22": "Pairs of strategies were tested on one Redis, with Sentinel and on a cluster. Not every pair was tested under every fault.",
	"R23": "Not every key was tried: the tests draw keys at random, and from a list of hostile keys.",
	"R24": "What the runtime and the store's client keep for themselves.",
	"R25": "That the margin is longer than what a write may take on its way. No soak uses WithMargin.",
	"R26": "That a process without a processor learns of it: see R10.",
	"R27": "Signals are hints: what happens without one is R10 and R11. PgBouncer and roles that may not subscribe pass none on. A request is sent once: one that is lost is not sent again.",
	"R28": "Permits are counted by the soak and its replay, and are not in the model of claims, which has one holder. Strategy redlock keeps none. The simulation has no weights.",
}
