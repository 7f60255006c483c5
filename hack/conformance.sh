#!/usr/bin/env bash
# Runs the conformance probe of ../shared/conformance: against a fresh `perigee
# dev`, then, without its slow cases, against a cluster of processes (one
# controller, one broker group, two proxies). Deliberate differences stand in
# docs/conformance-differences.tsv.
#
#   hack/conformance.sh             both
#   hack/conformance.sh dev         only against perigee dev
#   hack/conformance.sh cluster     only against the cluster
#
# SHARED      folder with conformance/, default ../shared
# ONLY        regular expression: only cases with such an id
set -euo pipefail
cd "$(dirname "$0")/.."

probe=${SHARED:-../shared}/conformance
if [[ ! -d $probe ]]; then
  echo "conformance: skipped, there is no $probe"
  exit 0
fi

source hack/lib.sh
go build -C "$probe" -o "$work/conform" ./cmd/conform

# ids prints the ids of the cases; the last line of the list counts them.
ids() { "$work/conform" -list | awk '$2 != "cases," { print $1 }'; }

cases=$(ids)
if [[ -n ${ONLY:-} ]]; then cases=$(grep -E -- "$ONLY" <<<"$cases"); fi

# check ADDR CASES ARGS... asks the server at ADDR.
check() {
  local addr=$1 ids=$2
  shift 2
  local args=(-addr "$addr" -check "$probe" -only "^($(paste -sd '|' <<<"$ids"))\$")
  if grep -qsv '^#' docs/conformance-differences.tsv; then
    args+=(-except docs/conformance-differences.tsv)
  fi
  "$work/conform" "${args[@]}" "$@"
}

dev() {
  local grpc http
  free_port && grpc=127.0.0.1:$port
  free_port && http=127.0.0.1:$port
  say "conformance: $(wc -l <<<"$cases") cases against perigee dev"
  start dev dev --auto-create=false --grpc-addr "$grpc" --http-addr "$http" --data-dir "$work/dev"
  bin/perigee apply --server "$grpc" -f "$probe/setup.yaml" >"$work/apply.log" 2>&1
  check "$grpc" "$cases"
  stop_all
}

cluster() {
  local controller raft broker grpc=() http=() i part
  free_port && controller=127.0.0.1:$port
  free_port && raft=127.0.0.1:$port
  free_port && broker=127.0.0.1:$port
  for i in 1 2; do
    free_port && grpc[i]=127.0.0.1:$port
    free_port && http[i]=127.0.0.1:$port
  done
  say "conformance: the short ones against a cluster of processes"
  start controller controller --data-dir "$work/controller" --addr "$controller" --raft-addr "$raft"
  start broker broker --data-dir "$work/broker" --addr "$broker" --group a --id 1 --controller "$controller"
  for i in 1 2; do
    start "proxy$i" proxy --grpc-addr "${grpc[i]}" --http-addr "${http[i]}" --controller "$controller" --auto-create=false --drain-delay 0s
  done
  bin/perigee apply --server "${grpc[1]}" -f "$probe/setup.yaml" >"$work/apply.log" 2>&1
  check "${grpc[1]}" "$cases" -short
  say "conformance: a part of them through the other proxy"
  if part=$(grep -E '^(route|assign|send-normal|send-batch|receive|delivered|ack|change|terminate)' <<<"$cases"); then
    check "${grpc[2]}" "$part" -short
  fi
  stop_all
}

make --no-print-directory build
case ${1:-both} in
  dev) dev ;;
  cluster) cluster ;;
  both)
    dev
    cluster
    ;;
  *)
    echo "usage: hack/conformance.sh [dev|cluster]" >&2
    exit 2
    ;;
esac
say "conformance: all right"
