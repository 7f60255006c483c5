#!/usr/bin/env bash
# Does faults of machines and networks to a cluster of processes, a line for each, and checks every answer. What
# fails leaves its data, logs and histories, and says how to do it again.
#
# FAULTS      how many, at random; default: each of a short list once
# ONLY        only the one of this name, or those with this in their name
# SEED        of the first episode, default by the clock
# LIMIT       a fault fails if nothing could be sent to a broker group for longer, like 2s
# CHAOS_TIME  begin no fault after so many seconds
# CHAOS_KEEP  where to leave what fails, default .cache/chaos
set -euo pipefail
cd "$(dirname "$0")/.."

keep=${CHAOS_KEEP:-$PWD/.cache/chaos}
mkdir -p "$keep"
work=$(mktemp -d "${TMPDIR:-/tmp}/perigee-chaos.XXXXXX")
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -o "$work/perigee" ./cmd/perigee
CGO_ENABLED=0 go test -c -o "$work/chaostest" ./internal/chaostest

args=(-test.timeout 0 -test.run '^TestChaos$' -test.v -seed "${SEED:-0}" -keep "$keep" -only "${ONLY:-}" -limit "${LIMIT:-0}")
if [[ -n ${FAULTS:-} ]]; then args+=(-faults "$FAULTS"); else args+=(-set); fi
if [[ -n ${CHAOS_TIME:-} ]]; then args+=(-time "${CHAOS_TIME}s"); fi
cd internal/chaostest
TEST_PERIGEE_BIN=$work/perigee "$work/chaostest" "${args[@]}"
