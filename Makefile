# `make help` lists the targets. What only uses Perigee needs Go and nothing else;
# lint and generated code need the tools that hack/tools.sh installs into .tools.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Where the conformance probe is, if it is on this machine.
export SHARED ?= ../shared
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
LINT := .tools/bin/golangci-lint

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build ./bin/perigee, one static binary
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/perigee ./cmd/perigee

.PHONY: run
run: build ## build and start a whole Perigee in one process (needs Go only)
	@bin/perigee dev

.PHONY: test
test: ## run every test that needs Go only (no cgo, no race detector)
	CGO_ENABLED=0 go test -count=1 ./internal/archtest
	CGO_ENABLED=0 go test ./...

# Tests whose servers are processes of their own, which the race detector does not see: `make test`
# runs them.
PROCESS_TESTS := blackbox|crashtest|chaostest|deploytest|abuse

.PHONY: race
race: ## run the tests with the race detector, in random order (needs a C compiler)
	CGO_ENABLED=0 go test -count=1 ./internal/archtest
	CGO_ENABLED=1 go test -race -shuffle=on $$(go list ./... | grep -Ev '/internal/($(PROCESS_TESTS)|simtest)$$')
	CGO_ENABLED=1 go test -race ./internal/simtest -sim.seeds=2

.PHONY: abuse
abuse: ## load and abuse at full size: prints figures (takes minutes, and several GiB of memory for a while)
	TEST_ABUSE_FULL=1 CGO_ENABLED=0 go test -count=1 -timeout 40m -v ./internal/abuse

.PHONY: mutate
mutate: ## switch rules off, one at a time: the tests must catch each (TRUST=1: they have just passed as the code is)
	@go run ./hack/mutate $(if $(TRUST),-trust)

.PHONY: faults
faults: ## write the list of faults in docs/reliability.md from the tests
	@go run ./hack/faults

.PHONY: check
check: gen-check lint race test short-crash short-chaos short-soak short-fuzz conformance interop rolling ## all that CI runs

.PHONY: tools
tools: ## install the pinned tools into .tools, from source
	@hack/tools.sh

.PHONY: proto
proto: ## format proto/ and generate api/ from it
	@hack/tools.sh proto
	@hack/gen.sh

.PHONY: gen-check
gen-check: ## buf lint and format; is api/ what proto/ says?
	@hack/tools.sh proto
	@hack/gen.sh check

.PHONY: lint
lint: tools ## golangci-lint; vet for linux; build and vet for darwin
	$(LINT) run
	$(LINT) fmt --diff
	GOOS=linux CGO_ENABLED=0 go vet ./...
	GOOS=darwin CGO_ENABLED=0 go build ./...
	GOOS=darwin CGO_ENABLED=0 go vet ./...

.PHONY: fmt
fmt: tools ## format the Go sources
	$(LINT) fmt

.PHONY: conformance
conformance: ## ask a fresh server and a cluster the questions of ../shared/conformance
	@hack/conformance.sh

.PHONY: interop
interop: build ## run the official clients against a server and a cluster
	@interop/run.sh

.PHONY: millions
millions: ## ten million messages ready, then leased: what everything costs then (takes minutes, and 5 GiB in TMPDIR)
	TEST_MILLIONS=10000000 CGO_ENABLED=0 go test -count=1 -timeout 40m -v -run '^TestMillions$$' ./broker/engine

.PHONY: bench
bench: build ## measure CPU per message against a bare gRPC call
	@hack/bench.sh

.PHONY: bench-replicas
bench-replicas: build ## measure what three replicas cost against one: sends per second, bytes of log
	CGO_ENABLED=0 go run ./internal/bench/replicas -perigee bin/perigee

.PHONY: bench-start
bench-start: build ## measure starts with ten million messages, then with 10,000 topics (needs 7 GiB in TMPDIR)
	@go run ./internal/startbench
	@go run ./internal/startbench -messages 2000000 -topics 10000

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (default 20s), with a table; FUZZCPU=600: until each has had that much in all (docs/fuzzing.tsv)
	@hack/fuzz.sh

# As long as CI has time for each.
.PHONY: short-crash short-chaos short-soak short-fuzz
short-crash:
	@CRASH_TIME=90 ROUNDS=1000 $(MAKE) --no-print-directory crash

short-chaos:
	@CHAOS_TIME=60 $(MAKE) --no-print-directory chaos

short-soak:
	@SOAK_TIME=100s $(MAKE) --no-print-directory soak

short-fuzz:
	@FUZZTIME=1s FUZZBUDGET=70 $(MAKE) --no-print-directory fuzz

.PHONY: crash
crash: ## kill processes under load ROUNDS times (default 200) and check every answer; MODE=dev|cluster, SEED, CRASH_TIME
	@hack/crash.sh

.PHONY: chaos
chaos: ## kill, freeze and cut off processes of a cluster FAULTS times (default: a short list) and check every answer; ONLY, SEED, CHAOS_TIME
	@hack/chaos.sh

.PHONY: rolling
rolling: build ## restart every process of a cluster in order under official clients (ROLLING_LANGS="java go python"): no call of an application fails
	@hack/rolling.sh

.PHONY: sim
sim: ## a whole cluster on simulated clock, network and disks: SEED=17 one seed with what happened, SEEDS=1000 so many new ones
	@hack/sim.sh

.PHONY: soak
soak: build ## run a service for SOAK_TIME (default 1h) under a load of everything; memory, files and lag must stay flat
	@go run ./internal/soak -time $(or $(SOAK_TIME),1h)

.PHONY: power
power: ## run the tests that take the power away from files, COUNT times (default 5)
	CGO_ENABLED=0 go test -count=$(or $(COUNT),5) -run 'Crash|Power' ./internal/vfs/... ./store/... ./broker/... ./controller/...

.PHONY: cover
cover: ## tell how much of each package the tests run
	@mkdir -p .cache
	CGO_ENABLED=0 go test -coverprofile=.cache/cover.out ./... >/dev/null
	@go tool cover -func=.cache/cover.out | tail -n 1
	@echo "go tool cover -html=.cache/cover.out shows the lines"
