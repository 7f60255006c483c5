#!/usr/bin/env bash
# Runs every fuzz target for a while (FUZZTIME, default 20s each), one after the
# other, and prints a table: target, CPU time of it, executions, result. It keeps
# going after a failure and then ends with status 1. With FUZZBUDGET=SECONDS it
# begins no target after that time, takes them in another order each day, and
# lists what it left out. What breaks a target is kept by go in testdata/fuzz:
# commit it, it is a test from then on.
#
# With FUZZCPU=SECONDS it is the long run: each target on one core, until it has
# had so much CPU time in all. docs/fuzzing.tsv keeps count over many runs.
# FUZZLANE=K/N takes every Nth target from the Kth on, so that N such runs share
# the work; FUZZCACHE=DIR keeps what was found interesting for the next one.
#
#   hack/fuzz.sh [PACKAGE...]    default ./...
set -euo pipefail
cd "$(dirname "$0")/.."

ledger=docs/fuzzing.tsv
if (($# == 0)); then set -- ./...; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "$@" | while read -r dir; do
  { grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null || true; } | sed "s|^func |$dir |" | sort
done >"$work/targets"
if [[ -n ${FUZZBUDGET:-} && -z ${FUZZCPU:-} ]]; then
  shuf --random-source=<(yes "$(date +%F)") "$work/targets" -o "$work/targets"
fi
if [[ -n ${FUZZLANE:-} ]]; then
  awk -v k="${FUZZLANE%/*}" -v n="${FUZZLANE#*/}" '(NR - k) % n == 0' "$work/targets" >"$work/lane"
  mv "$work/lane" "$work/targets"
fi

failed=0 left=0 cpu=0 execs=0 result=ok
TIMEFORMAT='%U %S'

# run DIR TARGET TIME [ARGUMENT...]: sets cpu, execs and result.
run() {
  local dir=$1 target=$2 time=$3
  shift 3
  result=ok
  { time { (cd "$dir" && "$work/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzcachedir "$cache/$target" "$@") </dev/null >"$work/out" 2>&1; } || result=FAILED; } 2>"$work/time"
  # The fuzzer ends so now and then when its time is over while a worker is busy (golang/go#75804): nothing was found.
  if [[ $result == FAILED ]] && grep -q 'context deadline exceeded' "$work/out" && ! grep -qE 'Failing input|panic:|fatal error:' "$work/out"; then result=ok; fi
  cpu=$(tail -n 1 "$work/time" | awk '{ printf "%.1f", $1 + $2 }')
  execs=$(grep -oE 'execs: [0-9]+' "$work/out" | tail -n 1 | cut -d' ' -f2 || true)
}

# had NAME COLUMN: what the ledger says of a target, 0 if nothing.
had() { awk -F'\t' -v name="$1" -v col="$2" '$1 == name { v = $col } END { print v + 0 }' "$ledger" 2>/dev/null || echo 0; }

# count NAME CPU EXECUTIONS: adds to the ledger.
count() {
  (
    flock 9
    [[ -f $ledger ]] || printf 'target\tcpu_seconds\texecutions\n' >"$ledger"
    awk -F'\t' -v OFS='\t' -v name="$1" -v cpu="$2" -v execs="$3" '
      $1 == name { $2 = sprintf("%.0f", $2 + cpu); $3 = sprintf("%.0f", $3 + execs); met = 1 } { print }
      END { if (!met) print name, sprintf("%.0f", cpu), execs }' "$ledger" >"$work/ledger"
    { head -n 1 "$work/ledger"; tail -n +2 "$work/ledger" | LC_ALL=C sort; } >"$ledger"
  ) 9>"${TMPDIR:-/tmp}/perigee-fuzzing.lock"
}

printf '%-55s %9s %12s  %s\n' target 'CPU s' executions result
while read -r dir target; do
  name="${dir#"$PWD"/} $target"
  if [[ -n ${FUZZCPU:-} ]] && (($(had "$name" 2) >= FUZZCPU)); then continue; fi
  if [[ -n ${FUZZBUDGET:-} ]] && ((SECONDS >= FUZZBUDGET)); then
    printf '%-55s %9s %12s  %s\n' "$name" - - 'not run: no time left'
    left=$((left + 1))
    continue
  fi
  cache=${FUZZCACHE:-$(go env GOCACHE)/fuzz}/${dir#"$PWD"/}
  mkdir -p "$cache"
  if ! go test -C "$dir" -c -fuzz "^$target\$" -o "$work/test" . >"$work/out" 2>&1; then # what is built is not measured
    result=FAILED cpu=- execs=-
  elif [[ -z ${FUZZCPU:-} ]]; then
    run "$dir" "$target" "${FUZZTIME:-20s}"
  else
    result=ok
    while [[ $result == ok ]] && (($(had "$name" 2) < FUZZCPU)) && { [[ -z ${FUZZBUDGET:-} ]] || ((SECONDS < FUZZBUDGET)); }; do
      rest=$((FUZZCPU - $(had "$name" 2)))
      GOMAXPROCS=1 run "$dir" "$target" "$((rest < 20 ? 20 : rest > 300 ? 300 : rest))s" -test.parallel 1 -test.fuzzminimizetime 2s
      if [[ $result == ok ]]; then count "$name" "$cpu" "${execs:-0}"; fi
    done
    cpu=$(had "$name" 2) execs=$(had "$name" 3)
  fi
  if [[ $result == FAILED ]]; then failed=$((failed + 1)); fi
  printf '%-55s %9s %12s  %s\n' "$name" "$cpu" "${execs:--}" "$result"
  if [[ $result == FAILED ]]; then sed 's/^/    /' "$work/out"; fi
done <"$work/targets"
echo "$(wc -l <"$work/targets") targets, $failed failed, $left not run"
((failed == 0))
