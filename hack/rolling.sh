#!/usr/bin/env bash
# Restarts every process of a cluster in order, one after another, while official clients send and receive through a
# load balancer that follows /readyz: no call of an application may fail, nothing may be lost or come twice. interop/README.md tells
# what the clients' programs do. What fails leaves its data, logs and what the clients saw.
#
# ROLLING_LANGS  which clients, default "go python"; also java
# ROLLING_KEEP   where to leave what fails, default .cache/rolling
set -euo pipefail
cd "$(dirname "$0")/.."

read -ra langs <<<"${ROLLING_LANGS:-go python}"
build=$PWD/interop/.build
keep=${ROLLING_KEEP:-$PWD/.cache/rolling}
mkdir -p "$build" "$keep"
source hack/lib.sh
source interop/build.sh
build_all
CGO_ENABLED=0 go test -c -o "$work/chaostest" ./internal/chaostest

args=(-test.timeout 10m -test.run '^TestRolling$' -test.v -keep "$keep")
for lang in "${langs[@]}"; do
  case $lang in
    go) argv=(env rocketmq.client.logRoot=%s "$build/interop-go") ;;
    java) argv=(java -Xmx256m -XX:+UseSerialGC -Drocketmq.log.root=%s -cp "$build/java/classes:$(<"$build/java/classpath")" interop.Main) ;;
    python) argv=(env HOME=%s PYTHONDONTWRITEBYTECODE=1 "$build/venv/bin/python" "$PWD/interop/python/main.py") ;;
    *)
      echo "rolling: no client $lang; ROLLING_LANGS takes go, java, python" >&2
      exit 2
      ;;
  esac
  args+=(-client "$(printf '%s\n' "$lang" "${argv[@]}")")
done
cd internal/chaostest
TEST_PERIGEE_BIN=$build/../../bin/perigee "$work/chaostest" "${args[@]}"
