#!/usr/bin/env bash
# Installs the pinned tools into .tools, from source or through npm's client,
# and only what is not there in the pinned version. The heavy one is
# golangci-lint, one to three minutes; with "proto" as argument only what
# `make proto` needs is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

buf=1.75.0
protoc_gen_go=v1.36.12
protoc_gen_go_grpc=v1.6.2
golangci_lint=v2.15.0

mkdir -p .tools/bin .tools/stamps

# install NAME VERSION COMMAND...: runs the command unless it ran before for
# this version (and, for Go tools, this Go).
install() {
  local name=$1 version=$2 stamp
  shift 2
  stamp=".tools/stamps/$name"
  if [[ -f $stamp && $(<"$stamp") == "$version" ]]; then
    return
  fi
  echo "installing $name $version"
  "$@"
  echo "$version" >"$stamp"
}

go_install() {
  GOBIN="$PWD/.tools/bin" GOFLAGS=-mod=mod CGO_ENABLED=0 go install "$1"
}

go=$(go env GOVERSION)
install buf "$buf" npm install --prefix .tools --no-save --no-audit --no-fund --ignore-scripts --loglevel=error "@bufbuild/buf@$buf"
install protoc-gen-go "$protoc_gen_go" go_install "google.golang.org/protobuf/cmd/protoc-gen-go@$protoc_gen_go"
install protoc-gen-go-grpc "$protoc_gen_go_grpc" go_install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$protoc_gen_go_grpc"
if [[ ${1:-} != proto ]]; then
  install golangci-lint "$golangci_lint $go" go_install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$golangci_lint"
fi
