#!/usr/bin/env bash
# Generates api/ from proto/ and brings it up to date; with "check" it only tells
# whether it is, and whether the sources are formatted and keep our rules.
# Everything is generated into a folder of its own first, so that a build that
# runs meanwhile never sees half of it.
set -euo pipefail
cd "$(dirname "$0")/.."

buf=.tools/node_modules/.bin/buf
fresh=.tools/generated
rm -rf "$fresh"

if [[ ${1:-} == check ]]; then
  "$buf" lint
  "$buf" format -d --exit-code
  # What was released must stay readable.
  if release=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
    "$buf" breaking --against ".git#tag=$release"
  fi
  "$buf" generate -o "$fresh"
  if ! diff -r "$fresh/api" api; then
    echo "api/ is not what proto/ says: run make proto" >&2
    exit 1
  fi
else
  "$buf" format -w
  "$buf" lint
  "$buf" generate -o "$fresh"
  # File by file, and only what changed: nothing is rebuilt without need.
  (cd "$fresh/api" && find . -type f) | while read -r file; do
    if ! cmp -s "$fresh/api/$file" "api/$file"; then
      mkdir -p "$(dirname "api/$file")"
      cp "$fresh/api/$file" "api/$file"
      echo "changed api/${file#./}"
    fi
  done
  (cd api && find . -type f) | while read -r file; do
    if [[ ! -e $fresh/api/$file ]]; then
      rm "api/$file"
      echo "removed api/${file#./}"
    fi
  done
fi
rm -rf "$fresh"
