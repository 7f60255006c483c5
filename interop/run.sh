#!/usr/bin/env bash
# Runs the official clients, one program each, against Perigee: `perigee dev`,
# and a cluster of processes (one controller, two broker groups, two proxies:
# what is sent through the first is received through the second). README.md
# tells what the programs check.
#
#   interop/run.sh              both, side by side
#   interop/run.sh dev          only against perigee dev
#   interop/run.sh cluster      only against the cluster
#
# INTEROP_LANGS   which clients, default "java python node go rust"
# INTEROP_JOBS    how many programs run at a time, default 2: each runs all its checks at a time
#
# Everything that is built, and what the programs wrote, is in interop/.build.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=("$@")
if ((${#targets[@]} == 0)); then targets=(dev cluster); fi
for target in "${targets[@]}"; do
  if [[ $target != dev && $target != cluster ]]; then
    echo "usage: interop/run.sh [dev] [cluster]" >&2
    exit 2
  fi
done
read -ra langs <<<"${INTEROP_LANGS:-java python node go rust}"
jobs_max=${INTEROP_JOBS:-2}
build=$PWD/interop/.build
logs=$build/logs
run=$(date +%H%M%S)

source hack/lib.sh
source interop/build.sh

# dev and cluster start servers and set addresses[NAME] to what --endpoints takes.
declare -A addresses=()

dev() {
  local grpc http
  free_port && grpc=127.0.0.1:$port
  free_port && http=127.0.0.1:$port
  start dev dev --auto-create=false --grpc-addr "$grpc" --http-addr "$http" --data-dir "$work/dev"
  addresses[dev]=$grpc
}

cluster() {
  local controller raft grpc=() http i
  free_port && controller=127.0.0.1:$port
  free_port && raft=127.0.0.1:$port
  start controller controller --data-dir "$work/controller" --addr "$controller" --raft-addr "$raft"
  for i in 1 2; do
    free_port
    start "broker$i" broker --data-dir "$work/broker$i" --addr "127.0.0.1:$port" --group "g$i" --id 1 --controller "$controller"
  done
  for i in 1 2; do
    free_port && grpc[i]=127.0.0.1:$port
    free_port && http=127.0.0.1:$port
    start "proxy$i" proxy --grpc-addr "${grpc[i]}" --http-addr "$http" --controller "$controller" --auto-create=false --drain-delay 0s
  done
  addresses[cluster]=${grpc[1]},${grpc[2]}
}

# program sets `argv` to the program of a client; its client logs to a folder.
program() {
  local lang=$1 folder=$2
  case $lang in
    go) argv=(env "rocketmq.client.logRoot=$folder" "$build/interop-go") ;;
    java) argv=(java -Xmx512m -XX:+UseSerialGC "-Drocketmq.log.root=$folder" -cp "$build/java/classes:$(<"$build/java/classpath")" interop.Main) ;;
    python) argv=(env "HOME=$folder" PYTHONDONTWRITEBYTECODE=1 "$build/venv/bin/python" interop/python/main.py) ;;
    node) argv=(node interop/node/main.js) ;;
    rust) argv=("$build/rust/debug/perigee-interop") ;;
  esac
}

# launch starts the program of a client against a target, in the background.
declare -A running=() begun=() # process id -> "target lang", start in seconds
launch() {
  local target=$1 lang=$2 argv name=$1-$2
  mkdir -p "$logs/$name"
  program "$lang" "$logs/$name"
  timeout --kill-after=5 120 "${argv[@]}" --endpoints "${addresses[$target]}" --run "$run" \
    >"$logs/$name/checks" 2>"$logs/$name/stderr" &
  started[$name]=$!
  running[$!]="$target $lang"
  begun[$!]=$SECONDS
}

# settle waits for one program, reads its last line and adds to the table.
passed=0 failed=0 skipped=0 table=()
settle() {
  local pid status=0 target lang name last counts
  wait -n -p pid "${!running[@]}" || status=$?
  read -r target lang <<<"${running[$pid]}"
  name=$target-$lang
  unset "running[$pid]" "started[$name]"
  last=$(tail -n 1 "$logs/$name/checks")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
    counts=("${BASH_REMATCH[@]:1}")
  else
    counts=(0 1 0) # it did not come to its end
  fi
  if ((status != 0 && counts[1] == 0)); then counts[1]=1; fi
  passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
  table+=("$(printf '%-8s %-7s %7d %7d %8d %8d' "$target" "$lang" "${counts[@]}" $((SECONDS - begun[$pid])))")
  say "$target, $lang: $last"
  if ((counts[1] > 0)); then
    echo "--- $name, exit status $status"
    cat "$logs/$name/checks"
    echo "--- last lines of what it wrote besides ($logs/$name)"
    tail -n 30 "$logs/$name/stderr" | cut -c 1-400
  fi
}

rm -rf "$logs"
mkdir -p "$logs"
build_all
sed -E "s/-RUN([,}])/-$run\1/" interop/setup.yaml >"$work/setup.yaml"
for target in "${targets[@]}"; do
  say "starting $target"
  "$target"
  bin/perigee apply --server "${addresses[$target]%%,*}" -f "$work/setup.yaml" >"$work/apply-$target.log" 2>&1
done
say "running ${langs[*]} against ${targets[*]}"
for lang in "${langs[@]}"; do
  for target in "${targets[@]}"; do
    if ((${#running[@]} >= jobs_max)); then settle; fi
    launch "$target" "$lang"
  done
done
while ((${#running[@]} > 0)); do settle; done

echo
printf '%-8s %-7s %7s %7s %8s %8s\n' target client passed failed skipped seconds
printf '%s\n' "${table[@]}" | sort
echo
echo "$passed passed, $failed failed, $skipped skipped"
if ((failed > 0)); then
  cp "$work"/*.log "$logs/"
  exit 1
fi
