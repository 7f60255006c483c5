# Builds the programs of $langs into $build, side by side. Sourced by run.sh.
# What is there and fresh is not built again.

# tools says which command a client's program needs and this machine has not.
tools() {
  local lang tool missing=()
  if [[ ! -x bin/perigee ]]; then missing+=("bin/perigee (make build)"); fi
  for lang in "${langs[@]}"; do
    case $lang in
      go) set -- go ;;
      java) set -- java javac mvn ;;
      python) set -- python3 ;;
      node) set -- node npm ;;
      rust) set -- cargo cc ;;
      *)
        echo "interop: no client $lang; INTEROP_LANGS takes go, java, python, node, rust" >&2
        return 2
        ;;
    esac
    for tool; do
      type -P "$tool" >/dev/null || missing+=("$tool (for $lang)")
    done
  done
  if ((${#missing[@]} > 0)); then
    printf 'interop: missing: %s\n' "${missing[@]}" >&2
    echo "interop: install it, or choose clients with INTEROP_LANGS" >&2
    return 1
  fi
}

# stale STAMP FILE...: is a file newer than the stamp, or the stamp missing?
stale() {
  local stamp=$1 file
  shift
  for file; do
    if [[ ! $stamp -nt $file ]]; then return 0; fi
  done
  return 1
}

build_go() {
  go build -C interop/go -o "$build/interop-go" .
}

build_java() {
  local sources
  mapfile -t sources < <(find interop/java/src -name '*.java')
  if ! stale "$build/java/built" interop/java/pom.xml "${sources[@]}"; then return; fi
  rm -rf "$build/java"
  mkdir -p "$build/java"
  mvn -q -B -f interop/java/pom.xml compile dependency:build-classpath -Dmdep.outputFile="$build/java/classpath"
  touch "$build/java/built"
}

build_python() {
  if ! stale "$build/venv/built" interop/python/requirements.txt; then return; fi
  rm -rf "$build/venv"
  python3 -m venv "$build/venv"
  "$build/venv/bin/pip" install -q --disable-pip-version-check -r interop/python/requirements.txt
  touch "$build/venv/built"
}

build_node() {
  if ! stale interop/node/node_modules/.built interop/node/package-lock.json; then return; fi
  (cd interop/node && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error)
  touch interop/node/node_modules/.built
}

build_rust() {
  local protoc=${PROTOC:-$(type -P protoc || true)}
  if [[ -z $protoc ]]; then
    # A Python package brings one along.
    protoc=$build/protoc/protoc
    if [[ ! -x $protoc ]]; then
      python3 -m venv "$build/protoc"
      "$build/protoc/bin/pip" install -q --disable-pip-version-check grpcio-tools==1.85.1
      printf '#!/bin/sh\nexec "%s/bin/python" -m grpc_tools.protoc "$@"\n' "$build/protoc" >"$protoc"
      chmod +x "$protoc"
    fi
  fi
  PROTOC=$protoc CARGO_TARGET_DIR=$build/rust cargo build --quiet --locked --manifest-path interop/rust/Cargo.toml
}

build_all() {
  local lang pid begin=$SECONDS bad=()
  local -A pids=()
  tools
  say "building ${langs[*]}"
  for lang in "${langs[@]}"; do
    # A shell of its own: here `set -e` would not end a function in a condition.
    (build_"$lang") >"$work/build-$lang.log" 2>&1 &
    pids[$lang]=$!
    started[build-$lang]=$!
  done
  for lang in "${langs[@]}"; do
    if wait "${pids[$lang]}"; then
      say "built $lang after $((SECONDS - begin)) s"
    else
      bad+=("$lang")
    fi
    unset "started[build-$lang]"
  done
  if ((${#bad[@]} > 0)); then
    say "building ${bad[*]} failed"
    return 1
  fi
}
