#!/usr/bin/env bash
# Measures Perigee against a bare gRPC server, interleaved in one run, and prints ratios of server CPU
# per message. ROUNDS and SPAN change how long it takes; further arguments go to the comparison.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$work/perigee" ./cmd/perigee
CGO_ENABLED=0 go build -trimpath -o "$work/bare" ./internal/bench/bare
CGO_ENABLED=0 go build -trimpath -o "$work/compare" ./internal/bench/compare
"$work/compare" -perigee "$work/perigee" -bare "$work/bare" -rounds "${ROUNDS:-5}" -span "${SPAN:-2s}" "$@"
