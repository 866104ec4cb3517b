#!/usr/bin/env bash
# Runs every fuzz target for $FUZZTIME, one after the other. A new FuzzX is found by itself.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-10s}
found=0
while IFS=: read -r file line; do
  name=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/' <<<"$line")
  dir=$(dirname "$file")
  found=$((found + 1))
  echo "fuzz: $dir $name for $fuzztime"
  go test "$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime"
done < <(grep -rE --include='*_test.go' '^func Fuzz[A-Z]' ./internal ./cmd | sort)
if [ "$found" = 0 ]; then
  echo "fuzz: no fuzz target found" >&2
  exit 1
fi
echo "fuzz: $found targets, nothing found"
