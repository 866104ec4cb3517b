#!/usr/bin/env bash
# Rewrites golden files: runs the tests of every package that has an -update flag, with it, then without it.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t dirs < <(grep -rlE --include='*_test.go' 'flag\.Bool\("update"' ./internal ./cmd | xargs -r -n1 dirname | sort -u)
if [ ${#dirs[@]} = 0 ]; then
  echo "update: no package has golden files"
  exit 0
fi
for dir in "${dirs[@]}"; do
  echo "update: $dir"
  go test "$dir" -count=1 -update
done
echo "update: running the same tests against the new files"
go test "${dirs[@]}"
git --no-pager diff --stat -- '*/testdata/*' || true
