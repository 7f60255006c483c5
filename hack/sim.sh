#!/usr/bin/env bash
# Runs seeds of internal/simtest: SEED=17 one of them, with what happened (FIRST=N: its first fault is cell N, as a failure says); SEEDS=1000 (default 36) so many that nobody
# has tried. What happened in those that fail is kept in .cache/sim.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
mkdir -p .cache/sim
if [[ -n "${SEED:-}" ]]; then
	exec go test -count=1 -v -timeout 10m -run '^TestSim$' ./internal/simtest -sim.seed="$SEED" -sim.first="${FIRST:--1}" -sim.faults="${FAULTS:-10}"
fi
TEST_SEED="${TEST_SEED:-random}" exec go test -count=1 -v -timeout 0 -run '^TestSim$' ./internal/simtest \
	-sim.seeds="${SEEDS:-36}" -sim.faults="${FAULTS:-10}" -sim.keep="$PWD/.cache/sim"
