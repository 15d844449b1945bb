SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
COUNT ?= 3
FUZZTIME ?= 30s
DURATION ?= 5m
SOAK_FLAGS ?=
PEERS_FLAGS ?=
MATRIX_FLAGS ?=
SERVERS ?=
VERSION ?=
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
WIRE := github.com/google/wire/cmd/wire@v0.7.0
APIDIFF := golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e

# The modules beside the main one, which are no part of its ./...; those whose tests take longest come first, the
# command's not beside etcd's.
modules := $(patsubst ./%/go.mod,%,$(sort $(shell find . -mindepth 2 -name go.mod)))
MODULES := $(filter strategy/%,$(modules)) $(filter cmd/%,$(modules)) $(filter-out strategy/% cmd/%,$(modules))
# make test leaves these out: make test-benchmarks runs the tests of benchmarks, and the member has none.
UNTESTED := benchmarks strategy/etcd/internal/member

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# apt HOW PACKAGE...: installs Debian packages, after saying so; HOW is how to do without them.
define apt
apt() { \
	without=$$1; shift; root=; \
	if [ "$$(id -u)" != 0 ]; then root=sudo; fi; \
	echo "make: installs $$* ($${root:+by sudo }apt-get install $$*); $$without does without"; \
	if [ -n "$$root" ] && ! command -v sudo >/dev/null; then echo "make: as root: apt-get install $$*" >&2; return 1; fi; \
	get="$$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120"; \
	$$get update </dev/null || echo "make: goes on with the package lists that are here" >&2; \
	$$get install -y --no-install-recommends "$$@" </dev/null; \
}
endef

.PHONY: redis
redis: ## install redis-server when it is missing (LOCKER_REDIS_SERVER names another binary)
	@if command -v "$${LOCKER_REDIS_SERVER:-redis-server}" >/dev/null; then exit 0; fi; \
	fail() { echo "make redis: $$*" >&2; exit 1; }; \
	$(apt); \
	if [ -n "$${LOCKER_REDIS_SERVER:-}" ]; then fail "LOCKER_REDIS_SERVER=$$LOCKER_REDIS_SERVER cannot be run"; \
	elif command -v apt-get >/dev/null; then \
		apt LOCKER_REDIS_SERVER=/path/to/redis-server redis-server || fail "apt-get could not install redis-server"; \
	elif command -v brew >/dev/null; then fail "redis-server is missing: brew install redis"; \
	elif command -v dnf >/dev/null; then fail "redis-server is missing: dnf install redis (or valkey, and LOCKER_REDIS_SERVER=valkey-server)"; \
	else fail "redis-server is missing: install Redis 6 or later"; \
	fi; \
	command -v redis-server >/dev/null || fail "redis-server is installed but not in PATH"

initdb = $$(command -v initdb || ls -d /usr/lib/postgresql/*/bin/initdb 2>/dev/null | tail -n 1)

.PHONY: postgres
postgres: ## install PostgreSQL and PgBouncer when they are missing (LOCKER_POSTGRES=off leaves strategy/postgres out)
	@if [ "$${LOCKER_POSTGRES:-}" = off ]; then exit 0; fi; \
	if [ -n "$(initdb)" ] && command -v pgbouncer >/dev/null; then exit 0; fi; \
	$(apt); \
	if command -v apt-get >/dev/null; then apt LOCKER_POSTGRES=off postgresql pgbouncer; \
	else echo "make postgres: install PostgreSQL and PgBouncer, or leave strategy/postgres out by LOCKER_POSTGRES=off" >&2; exit 1; fi

.PHONY: mysql
mysql: ## install MariaDB when neither it nor MySQL is there (LOCKER_MYSQL_SERVER names another binary, LOCKER_MYSQL=off leaves strategy/mysql out)
	@if [ "$${LOCKER_MYSQL:-}" = off ]; then exit 0; fi; \
	if [ -n "$${LOCKER_MYSQL_SERVER:-}" ]; then \
		command -v "$$LOCKER_MYSQL_SERVER" >/dev/null || { echo "make mysql: LOCKER_MYSQL_SERVER=$$LOCKER_MYSQL_SERVER cannot be run" >&2; exit 1; }; \
		exit 0; \
	fi; \
	PATH="$$PATH:/usr/sbin"; \
	if command -v mariadbd >/dev/null || command -v mysqld >/dev/null; then exit 0; fi; \
	$(apt); \
	if command -v apt-get >/dev/null; then apt LOCKER_MYSQL=off mariadb-server-core mariadb-client-core; \
	else echo "make mysql: install MariaDB 10.6 or MySQL 8, or leave strategy/mysql out by LOCKER_MYSQL=off" >&2; exit 1; fi

strategies := ./strategy/... ./internal/test/strategies

# The compiler finds in its cache what another checkout has compiled.
test lint: export GOFLAGS += -trimpath

# Under the race detector every process, and there are hundreds, waits for a second at its end for reports of races.
test: export GORACE ?= atexit_sleep_ms=100

# The compiler runs at a lower priority than the tests beside it.
race_test = test -race -vet=all -toolexec 'nice -n 3'

.PHONY: test
test: redis postgres mysql ## vet, and all tests with the race detector; the packages that take longest come first
	$(GO) build -race ./... # first, so that the compiler takes little from the tests
	$(GO) $(race_test) -p 3 -timeout 8m $(strategies) ./... # most of these tests wait for half of their time
	$(GO) -C strategy/etcd/internal/member build -o /dev/null . # etcd takes a minute to compile: the tests that use it have none to spare
	@modules="$(filter-out $(UNTESTED),$(MODULES))"; \
	if [ "$${LOCKER_POSTGRES:-}" = off ]; then echo "left out: strategy/postgres (LOCKER_POSTGRES=off)"; modules=$${modules/strategy\/postgres/}; fi; \
	if [ "$${LOCKER_MYSQL:-}" = off ]; then echo "left out: strategy/mysql (LOCKER_MYSQL=off)"; modules=$${modules/strategy\/mysql/}; fi; \
	each() { xargs -P "$$1" -I {} $(GO) -C {} $(race_test) -parallel 16 -timeout 4m ./...; }; \
	printf '%s\n' $$modules | grep -E '^(strategy|cmd)/' | each 1; \
	printf '%s\n' $$modules | grep -vE '^(strategy|cmd)/' | each 2 # these have little to do

.PHONY: short
short: redis ## the tests that take little time, without the race detector
	$(GO) test -short -timeout 4m ./...

.PHONY: stress
stress: redis ## engine and strategies, COUNT times on 1, 2 and 8 processors
	$(GO) test -race -timeout 60m -count=$(COUNT) -cpu 1,2,8 . ./renewal $(strategies)

# go test -v, but for the lines that say when tests begin and go on.
without_beginnings = grep -vE '^=== (RUN|PAUSE|CONT|NAME)'

.PHONY: conformance
conformance: redis postgres mysql ## the whole conformance suite on every strategy and topology, case by case, with a table for each
	@# One package at a time: a case that is to run alone measures how promptly a strategy answers under load.
	LOCKER_CONFORMANCE=all $(GO) test -race -v -p 1 -timeout 40m -run '^Test(Conformance|Fake|Suite)' ./conformance $(strategies) | $(without_beginnings)
	if [ "$${LOCKER_POSTGRES:-}" != off ]; then LOCKER_CONFORMANCE=all $(GO) -C strategy/postgres test -race -v -parallel 16 -timeout 10m -run '^TestConformance' . | $(without_beginnings); fi
	if [ "$${LOCKER_MYSQL:-}" != off ]; then LOCKER_CONFORMANCE=all $(GO) -C strategy/mysql test -race -v -parallel 16 -timeout 10m -run '^TestConformance' . | $(without_beginnings); fi
	LOCKER_CONFORMANCE=all $(GO) -C strategy/etcd test -race -v -parallel 16 -timeout 10m -run '^TestConformance' . | $(without_beginnings)

# The cases that docs/cases.md marks as those that cause a fault, and the troubles that one store has besides, which are in
# the group faults; redlock's suite is in parts.
in_suite = TestConformance/(parallel|serial)/$(1)|TestConformance$$/(direct|faults)/(parallel|serial)/$(1)
fault_names = $(shell sed -nE 's/^- `[a-z-]+\/([A-Za-z]+)` \(fault\).*/\1/p' docs/cases.md | sort -u | paste -sd '|' -)
fault_cases = $(call in_suite,./^($(fault_names))$$)|$(call in_suite,faults)

.PHONY: faults
faults: redis postgres mysql ## what goes wrong, on every strategy and topology, case by case, with a table for each
	LOCKER_CONFORMANCE=all $(GO) test -race -v -p 1 -timeout 40m -run '$(fault_cases)' $(strategies) | $(without_beginnings)
	if [ "$${LOCKER_POSTGRES:-}" != off ]; then LOCKER_CONFORMANCE=all $(GO) -C strategy/postgres test -race -v -parallel 16 -timeout 10m -run '$(fault_cases)' . | $(without_beginnings); fi
	if [ "$${LOCKER_MYSQL:-}" != off ]; then LOCKER_CONFORMANCE=all $(GO) -C strategy/mysql test -race -v -parallel 16 -timeout 10m -run '$(fault_cases)' . | $(without_beginnings); fi
	LOCKER_CONFORMANCE=all $(GO) -C strategy/etcd test -race -v -parallel 16 -timeout 10m -run '$(fault_cases)' . | $(without_beginnings)

.PHONY: soak
soak: redis ## all strategies on Redis and their topologies under random faults for DURATION, checked; SOAK_FLAGS="-help" lists more
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && \
	$(GO) build -o "$$bin/soak" ./internal/test/soak/cmd/soak && "$$bin/soak" -duration=$(DURATION) $(SOAK_FLAGS)

.PHONY: soak-etcd
soak-etcd: redis ## strategy/etcd on three members under random faults for DURATION, checked; SOAK_FLAGS as for soak
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && \
	$(GO) -C strategy/etcd build -o "$$bin/soak" ./internal/soak && cd strategy/etcd && "$$bin/soak" -duration=$(DURATION) $(SOAK_FLAGS)

.PHONY: soak-postgres
soak-postgres: redis postgres ## strategy/postgres on a PostgreSQL under random faults for DURATION, checked; SOAK_FLAGS as for soak
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && \
	$(GO) -C strategy/postgres build -o "$$bin/soak" ./internal/soak && "$$bin/soak" -duration=$(DURATION) $(SOAK_FLAGS)

.PHONY: soak-mysql
soak-mysql: redis mysql ## strategy/mysql on a MariaDB or MySQL under random faults for DURATION, checked; SOAK_FLAGS as for soak
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && \
	$(GO) -C strategy/mysql build -o "$$bin/soak" ./internal/soak && "$$bin/soak" -duration=$(DURATION) $(SOAK_FLAGS)

.PHONY: matrix
matrix: ## the tests of the strategies on the programs in SERVERS, into docs/compatibility.md; MATRIX_FLAGS=-all runs every case everywhere
	@[ -n "$(SERVERS)" ] || { echo 'make matrix SERVERS="/path/to/redis-server /path/to/postgres ..."' >&2; exit 1; }
	$(GO) run ./internal/test/matrix -docs docs $(MATRIX_FLAGS) $(SERVERS)

.PHONY: browser
browser: redis ## the report of locker compare, and examples/once, in headless Chromium, which is installed when it is missing; a picture in docs/images; COMPARE_FLAGS=--no-suite is shorter
	@if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then \
		$(apt); \
		command -v apt-get >/dev/null || { echo "make browser: install Chromium" >&2; exit 1; }; \
		apt "another Chromium or Chrome in PATH" chromium; \
	fi
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	$(GO) -C cmd/locker run . compare --json $(COMPARE_FLAGS) --report "$$dir/report.html" >"$$dir/report.json" && mkdir -p docs/images && \
	$(GO) -C cmd/locker test -tags browser -count=1 -run TestReportInABrowser ./internal/compare -report "$$dir/report.html" -printed "$$dir/report.json" -screenshots "$$dir" && \
	cp "$$dir/top-light.png" docs/images/compare.png
	$(GO) -C examples/once test -tags browser -count=1 -run InABrowser .

OUT ?= dist-docs
.PHONY: docs-of-command
docs-of-command: ## the manual pages and shell completions of the command, into OUT
	@mkdir -p "$(OUT)/completions" && $(GO) -C cmd/locker run . man "$(abspath $(OUT))/man"
	@for shell in bash zsh fish powershell; do $(GO) -C cmd/locker run . completion $$shell >"$(OUT)/completions/locker.$$shell" || exit 1; done

.PHONY: nemesis
nemesis: redis ## the soak on lockers broken on purpose: it has to find what is wrong with each
	LOCKER_CONFORMANCE=all $(GO) test -v -p 1 -parallel 3 -timeout 40m -run '^(TestNemesis|TestFindsPlantedBugs)$$' ./conformance ./internal/test/soak | grep -E '^ok|FAIL|---|found'

TARGETS ?= conformance faults nemesis plant simulate models lint

.PHONY: proof
proof: ## make TARGETS, one after the other, and record each run for docs/verification.md, which make verification writes; all take 50 minutes
	$(GO) run ./internal/test/proof/cmd/proof -record conformance/testdata/proof.json $(TARGETS)

.PHONY: verification
verification: redis ## docs/verification.md and docs/cases.md from the tables of the conformance suite and the recorded runs
	$(GO) test -count=1 -run '^TestVerification$$' ./conformance -verification

SEEDS ?= 10000
SEED ?=
PLANT ?= 2000

.PHONY: simulate
simulate: ## SEEDS histories of Lockers on a store in memory, in virtual time, with faults; SEED=n plays one again, many times
	$(GO) test -race -timeout 60m -run '^TestSimulation$$' -v ./internal/test/simulation $(if $(SEED),-seed=$(SEED),-seeds=$(SEEDS)) | grep -vE '^ *(=== RUN|--- PASS: TestSimulation/)'

.PHONY: plant
plant: ## plant bugs in the engine, one after the other, and simulate PLANT histories with each: it has to find them
	$(GO) test -timeout 90m -run '^TestFindsPlantedBugs$$' -v ./internal/test/simulation -plant=$(PLANT) | $(without_beginnings)

.PHONY: models
models: ## go through the models of locks, and show how mistakes break their promises
	$(GO) test -v -timeout 60m -run '^Test(Claim|Quorum|Trace)' ./internal/spec -complete | $(without_beginnings)

.PHONY: pauses
pauses: redis postgres mysql ## 1,000 late writers on PostgreSQL, MariaDB, Redis and HTTP, with a check of their tokens and without, into docs/fencing.md
	$(GO) -C internal/test/fencing run ./pauses -n 1000 -docs ../../../docs/fencing.md

.PHONY: test-benchmarks
test-benchmarks: redis ## the tests of benchmarks, which make test leaves out
	$(GO) -C benchmarks test -race -count=1 ./...

.PHONY: report
report: redis postgres mysql ## the same faults for the strategies and for other libraries, 8 minutes, into docs/report.md; cases of the suite on other libraries, into docs/peers-suite.md
	$(GO) -C benchmarks run ./report -docs ../docs/report.md
	$(GO) -C strategy/etcd run ./internal/report -docs ../../docs/report.md
	$(GO) -C benchmarks run ./suite -docs ../docs/peers-suite.md
	$(GO) -C strategy/etcd run ./internal/suite -docs ../../docs/peers-suite.md
	$(GO) -C internal/test/fencing run ./report -docs ../../../docs/report.md

.PHONY: structure
structure: ## the functions, files and mutex operations that a free lock needs; fails above the bounds below
	@$(GO) run ./internal/test/structure -most 109,21,14

.PHONY: bench
bench: redis ## benchmarks
	$(GO) -C benchmarks test -run '^$$' -bench . -benchmem .

.PHONY: bench-peers
bench-peers: redis ## beside other lock libraries, 13 minutes, into docs/performance.md (scale is bench-scale; strategy/postgres has its own benchmark); PEERS_FLAGS="-help" lists more
	$(GO) -C benchmarks/peers run . -docs ../../docs $(PEERS_FLAGS)

.PHONY: bench-scale
bench-scale: redis ## a million locks, 5,000 waiters, clusters, starts, a model of a fleet: an hour, into docs/scale.md; SCALE_FLAGS="-help" lists more
	$(GO) -C benchmarks run ./scale -docs ../docs/scale.md $(SCALE_FLAGS)

.PHONY: peers
peers: ## whether a library with which docs/choosing.md compares has a newer version than the one compared
	LOCKER_PEERS=newest $(GO) test -count=1 -v -run '^TestPeersAreNewest$$' ./docs

.PHONY: lint
lint: ## gofmt, golangci-lint (vet and staticcheck among its linters), tidy go.mod files, words, workflows, fresh wire_gen.go, make structure
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then printf 'not gofmt-ed:\n%s\n' "$$unformatted" >&2; exit 1; fi
	@for m in . $(MODULES); do \
		echo "$$m: golangci-lint, tidy"; \
		(cd $$m && $(GO) run $(GOLANGCI) run ./... && $(GO) mod tidy -diff) || exit 1; \
	done
	$(GO) test -run '^TestWords' ./docs
	$(GO) run $(ACTIONLINT) # .github/workflows
	$(GO) run $(WIRE) diff ./examples/wire || { echo "wire_gen.go is not what wire makes of wire.go: make wire" >&2; exit 1; }
	@$(MAKE) --no-print-directory structure apidiff

CROSS ?= windows/amd64 darwin/arm64 freebsd/amd64 linux/386 linux/arm64
.PHONY: cross
cross: ## vet each released module for the other systems and processors we build for (CROSS)
	@for of in $(CROSS); do for m in . $(RELEASED); do \
		echo "$$of $$m"; GOOS=$${of%/*} GOARCH=$${of#*/} $(GO) -C "$$m" vet ./... || exit 1; done; done

.PHONY: vuln
vuln: ## govulncheck, in every module
	@for m in . $(MODULES); do echo "$$m"; (cd $$m && $(GO) run $(GOVULNCHECK) ./...) || exit 1; done

.PHONY: apidiff
apidiff: ## incompatible changes of the API of each released module since the last tag: CHANGELOG.md has to name what has changed
	@tag=$$(git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null) || { echo "there is no earlier tag: the API is not compared"; exit 0; }; \
	old=$$(mktemp -d); trap 'git worktree remove --force "$$old/tree"; rm -rf "$$old"' EXIT; \
	git worktree add --quiet --detach "$$old/tree" "$$tag"; \
	GOBIN="$$old" $(GO) install $(APIDIFF); \
	quietly() { "$$@" 2>"$$old/log" || { cat "$$old/log" >&2; exit 1; }; }; \
	news=$$(awk -v last="[$${tag#v}]" '/^## /{if (index($$0, last)) exit} {print}' CHANGELOG.md); \
	unnamed=; \
	for m in . $(filter-out cmd/%,$(RELEASED)); do \
		[ -f "$$old/tree/$$m/go.mod" ] || { echo "$$m: $$tag has no such module"; continue; }; \
		of=$$($(GO) -C "$$m" list -m); \
		(cd "$$old/tree/$$m" && quietly "$$old/apidiff" -m -w "$$old/api" "$$of"); \
		changes=$$(cd "$$m" && quietly "$$old/apidiff" -m -incompatible "$$old/api" "$$of"); \
		[ -n "$$changes" ] || continue; \
		while read -r change; do \
			name=$${change%%: *}; name=$${name##*[./ *)]}; \
			grep -qwF -- "$$name" <<<"$$news" || { echo "$$of $$change" >&2; unnamed=yes; }; \
		done <<<"$$changes"; \
	done; \
	[ -z "$$unnamed" ] || { echo "these changes since $$tag are incompatible, and CHANGELOG.md does not name them" >&2; exit 1; }; \
	echo "the API of each module is compatible with $$tag, or CHANGELOG.md names the change"

# The modules of this repository that the command needs: locker, locker/strategy/postgres, ...
command_needs = $(shell sed -nE 's|^(require)?[[:space:]]+github.com/distlock/(locker[^ ]*) v.*|\2|p' cmd/locker/go.mod)

.PHONY: release
release: ## make the modules ready for VERSION=v1.2.3, and say which tags to set
	@[[ "$(VERSION)" =~ ^v[0-9]+\.[0-9]+\.[0-9]+$$ ]] || { echo "make release VERSION=v1.2.3" >&2; exit 1; }
	@for m in $(MODULES); do \
		for of in $$(sed -nE 's#^(require)?[[:space:]]+(github.com/distlock/locker[^ ]*) v.*#\2#p' $$m/go.mod); do \
			$(GO) -C $$m mod edit -require "$$of@$(VERSION)"; \
		done; \
	done
	@for of in $(command_needs); do $(GO) -C cmd/locker mod edit -dropreplace "github.com/distlock/$$of"; done # go install refuses a module that replaces others
	@echo "commit this, and then:"; echo "git tag $(VERSION)"; for m in $(RELEASED); do echo "git tag $$m/$(VERSION)"; done; \
	echo "make release-replace # and commit that"

.PHONY: release-replace
release-replace: ## let the command use the modules beside it again: at its tag go.sum cannot contain the sums of its own release
	@for of in $(command_needs); do $(GO) -C cmd/locker mod edit -replace "github.com/distlock/$$of=../..$${of#locker}"; done

# The modules that others use; each has tags of its own.
RELEASED := $(filter-out $(UNTESTED) benchmarks/% examples/% internal/% %/monitoring,$(MODULES))

# The part of CHANGELOG.md for VERSION.
notes = awk -v v="[$(VERSION:v%=%)]" '/^\[.*\]: / {next} /^\#\# / {on = index($$0, "\#\# " v) == 1; next} on' CHANGELOG.md

.PHONY: release-notes
release-notes: ## print the part of CHANGELOG.md for VERSION; its links lead to the files of that version
	@[ -n "$(VERSION)" ] || { echo "make release-notes VERSION=v1.2.3" >&2; exit 1; }
	@$(notes) | sed 's#](docs/#](https://github.com/distlock/locker/blob/$(VERSION)/docs/#g'

.PHONY: release-check
release-check: ## whether HEAD has the tags of VERSION for all modules, CHANGELOG.md a part for it, and go install takes the command
	@[[ "$$($(notes))" = *[![:space:]]* ]] || { echo "CHANGELOG.md has no part for $(VERSION)" >&2; exit 1; }
	@head=$$(git rev-parse HEAD); \
	for tag in $(VERSION) $(addsuffix /$(VERSION),$(RELEASED)); do \
		[ "$$(git rev-parse -q --verify "refs/tags/$$tag^{commit}")" = "$$head" ] || { echo "HEAD has no tag $$tag" >&2; exit 1; }; \
	done; \
	if grep -q '^replace' cmd/locker/go.mod; then echo "cmd/locker/go.mod replaces modules: go install refuses it" >&2; exit 1; fi; \
	for m in $(RELEASED); do \
		if grep 'github.com/distlock/locker.* v0\.0\.0' $$m/go.mod; then echo "$$m/go.mod needs a version that is none" >&2; exit 1; fi; \
	done

# The systems for which the command is released.
SYSTEMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: release-build
release-build: ## the published command of VERSION for SYSTEMS, into dist
	@mkdir -p dist; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	GOMODCACHE=$$($(GO) env GOMODCACHE); export GOMODCACHE CGO_ENABLED=0; \
	for of in $(SYSTEMS); do \
		os=$${of%/*} arch=$${of#*/}; \
		GOBIN= GOPATH="$$work/$$of" GOOS=$$os GOARCH=$$arch $(GO) install -trimpath "github.com/distlock/locker/cmd/locker@$(VERSION)"; \
		mkdir "$$work/archive"; cp LICENSE "$$work/archive"; \
		find "$$work/$$of/bin" -type f -exec mv {} "$$work/archive" ';'; \
		tar -C "$$work/archive" -czf "dist/locker_$(VERSION)_$${os}_$$arch.tar.gz" .; \
		rm -r "$$work/archive"; \
	done; \
	cd dist && sha256sum ./*.tar.gz >checksums.txt

.PHONY: release-rehearsal
release-rehearsal: redis ## the release of HEAD as VERSION (v0.1.0) in a clone: tags, modules fetched from there, programs that build with them
	@internal/test/release/rehearse $(or $(VERSION),v0.1.0)

.PHONY: fuzz
fuzz: redis ## every fuzz target in turn, for FUZZTIME each
	@targets=$$(grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . || true); \
	[ -n "$$targets" ] || { echo "no fuzz targets"; exit 0; }; \
	while IFS=: read -r file func; do \
		name=$${func#func }; \
		echo "$$name in $${file%/*}"; \
		$(GO) -C "$${file%/*}" test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) . </dev/null; \
	done <<< "$$targets"

.PHONY: cover
cover: redis ## test coverage, into cover.out
	$(GO) test -timeout 8m -coverpkg=./... -coverprofile=cover.out ./...
	@$(GO) tool cover -func=cover.out | tail -n 1

.PHONY: demo
demo: redis ## a flash sale under a distributed lock
	$(GO) run ./examples/flashsale

.PHONY: wire
wire: ## write the wire_gen.go of examples/wire
	$(GO) run $(WIRE) gen ./examples/wire

.PHONY: clean
clean: ## remove what the other targets leave
	rm -f cover.out *.test *.prof
