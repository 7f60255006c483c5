#!/usr/bin/env bash
# Runs every fuzz target for a while (FUZZTIME, default 20s each), one after the
# other. What breaks one is kept by go in testdata/fuzz: commit it, it is a test
# from then on.
#
#   hack/fuzz.sh [PACKAGE...]    default ./...
set -euo pipefail
cd "$(dirname "$0")/.."

if (($# == 0)); then set -- ./...; fi
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "$@" | while read -r dir; do
  grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null | sed 's/^func //' | sort | while read -r target; do
    echo "$(date +%H:%M:%S) ${dir#"$PWD"/} $target"
    go test -C "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" . </dev/null
  done
done
