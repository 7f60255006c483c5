# Functions for scripts that run perigee processes. Sourced, with
# `set -euo pipefail` and the root of the tree as working directory.
#
#   work      a temporary folder, removed at the end
#   start     starts bin/perigee and waits until it is ready
#   stop_all  ends what start started, by process id; runs at exit

work=$(mktemp -d)
declare -A started=() # name -> process id
last_port=$((20000 + RANDOM % 8000))

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }

# free_port sets `port` to one on which nobody on 127.0.0.1 listens. They stay
# below the range from which the kernel takes ports of clients.
free_port() {
  while :; do
    last_port=$((last_port + 1 + RANDOM % 7))
    if ((last_port > 31000)); then last_port=20000; fi
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$last_port") 2>/dev/null; then
      port=$last_port
      return
    fi
  done
}

# start NAME ARGS... runs `bin/perigee ARGS...` with its output in $work/NAME.log
# and returns when it has printed its `ready ` line, at most 20 s later.
start() {
  local name=$1 pid
  shift
  bin/perigee "$@" >"$work/$name.log" 2>&1 &
  pid=$!
  started[$name]=$pid
  for _ in $(seq 200); do
    if grep -q '^ready ' "$work/$name.log"; then return; fi
    if ! kill -0 "$pid" 2>/dev/null; then
      say "$name ended before it was ready"
      return 1
    fi
    sleep 0.1
  done
  say "$name is not ready after 20 s"
  return 1
}

# stop_all asks every process to end at once, and kills what
# has not ended after 10 s.
stop_all() {
  local name pid
  for name in "${!started[@]}"; do kill -TERM "${started[$name]}" 2>/dev/null || true; done
  for name in "${!started[@]}"; do
    pid=${started[$name]}
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    if kill -0 "$pid" 2>/dev/null; then
      say "$name did not end within 10 s: killed"
      kill -KILL "$pid" 2>/dev/null || true
    fi
    wait "$pid" 2>/dev/null || true
  done
  started=()
}

# finish is the exit trap: the logs of a failure are worth more than a clean end.
finish() {
  local status=$?
  trap - EXIT
  if ((status != 0)); then
    local log
    for log in "$work"/*.log; do
      [[ -e $log ]] || continue
      echo "--- last lines of $(basename "$log")"
      tail -n 40 "$log"
    done
  fi
  stop_all
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM
