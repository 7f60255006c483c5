#!/usr/bin/env bash
# Kills a service under load again and again, a line for each round, and checks
# every answer: first `perigee dev`, then a cluster of processes. An episode that
# fails leaves its data, logs and history, and says how to run it again.
#
# ROUNDS      how many kills, default 200: three quarters of dev, the rest of the cluster
# MODE        dev or cluster: only this one
# SEED        of the first episode, default by the clock
# CRASH_TIME  stop after about so many seconds, whatever the number of rounds
# CRASH_KEEP  where to leave what fails, default .cache/crash
# PORTS       FROM-TO to listen on, default 20000-30999
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${ROUNDS:-200}
keep=${CRASH_KEEP:-$PWD/.cache/crash}
mkdir -p "$keep"
work=$(mktemp -d "${TMPDIR:-/tmp}/perigee-crash.XXXXXX")
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -o "$work/perigee" ./cmd/perigee
CGO_ENABLED=0 go test -c -o "$work/crashtest" ./internal/crashtest

# kill MODE ROUNDS SHARE runs one mode; SHARE is its part of the time, in percent.
kill_rounds() {
  local args=(-test.timeout 0 -test.run '^TestKill' -mode "$1" -rounds "$2" -seed "${SEED:-0}" -keep "$keep")
  if [[ -n ${CRASH_TIME:-} ]]; then args+=(-time "$((CRASH_TIME * $3 / 100))s"); fi
  if [[ -n ${PORTS:-} ]]; then args+=(-ports "$PORTS"); fi
  (cd internal/crashtest && TEST_PERIGEE_BIN=$work/perigee "$work/crashtest" "${args[@]}") || failed=1
}

failed=0
case ${MODE:-both} in
both)
  kill_rounds dev $((rounds - rounds / 4)) 50
  kill_rounds cluster $((rounds / 4)) 25 # what is left is for reading everything
  ;;
dev | cluster) kill_rounds "$MODE" "$rounds" 75 ;;
*)
  echo "crash: MODE is dev or cluster, not $MODE" >&2
  exit 2
  ;;
esac
exit $failed
