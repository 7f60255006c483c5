#!/usr/bin/env bash
# Runs every fuzz target for a while (FUZZTIME, default 20s each), one after the
# other, and prints a table: target, CPU time of it, executions, result. It keeps
# going after a failure and then ends with status 1. With FUZZBUDGET=SECONDS it
# begins no target after that time, takes them in another order each day, and
# lists what it left out. What breaks a target is kept by go in testdata/fuzz:
# commit it, it is a test from then on.
#
#   hack/fuzz.sh [PACKAGE...]    default ./...
set -euo pipefail
cd "$(dirname "$0")/.."

if (($# == 0)); then set -- ./...; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "$@" | while read -r dir; do
  { grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null || true; } | sed "s|^func |$dir |" | sort
done >"$work/targets"
if [[ -n ${FUZZBUDGET:-} ]]; then
  shuf --random-source=<(yes "$(date +%F)") "$work/targets" -o "$work/targets"
fi

failed=0 left=0
TIMEFORMAT='%U %S'
printf '%-55s %9s %12s  %s\n' target 'CPU s' executions result
while read -r dir target; do
  name="${dir#"$PWD"/} $target"
  if [[ -n ${FUZZBUDGET:-} ]] && ((SECONDS >= FUZZBUDGET)); then
    printf '%-55s %9s %12s  %s\n' "$name" - - 'not run: no time left'
    left=$((left + 1))
    continue
  fi
  go test -C "$dir" -c -fuzz "^$target\$" -o "$work/test" . >"$work/out" 2>&1 || true # what is built is not measured
  result=ok
  { time go test -C "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" . </dev/null >"$work/out" 2>&1 || result=FAILED; } 2>"$work/time"
  if [[ $result == FAILED ]]; then failed=$((failed + 1)); fi
  cpu=$(tail -n 1 "$work/time" | awk '{ printf "%.1f", $1 + $2 }')
  execs=$(grep -oE 'execs: [0-9]+' "$work/out" | tail -n 1 | cut -d' ' -f2 || true)
  printf '%-55s %9s %12s  %s\n' "$name" "$cpu" "${execs:--}" "$result"
  if [[ $result == FAILED ]]; then sed 's/^/    /' "$work/out"; fi
done <"$work/targets"
echo "$(wc -l <"$work/targets") targets, $failed failed, $left not run"
((failed == 0))
