#!/usr/bin/env bash
# Holds everything that has a plain twin against it over many random histories: CHECKS of them (default 5000) per oracle, from a
# random seed, or from SEED. ONLY=query takes the oracles whose line matches. Every oracle runs, also after one has failed.
set -euo pipefail
cd "$(dirname "$0")/.."
checks=${CHECKS:-5000}
failed=() ran=0
soak() { # name package test [module]
  [[ "$*" =~ ${ONLY:-} ]] || return 0
  local seed=${SEED:-$((RANDOM << 15 | RANDOM | 1))} begin=$SECONDS
  local command=(go -C "${4:-.}" test "$2" -run "^($3)\$" -count=1 -timeout=6h "-rapid.checks=$checks" "-rapid.seed=$seed" -rapid.nofailfile)
  ran=$((ran + 1))
  echo "soak: $1: $checks histories per test, seed $seed"
  local output
  if output=$("${command[@]}" 2>&1 | tee -a /dev/stderr) && [[ $output != *"no tests to run"* ]]; then
    echo "soak: $1: passed in $((SECONDS - begin)) s"
  else
    failed+=("$1")
    echo "soak: $1: FAILED after $((SECONDS - begin)) s; to see it again: ${command[*]}"
  fi
}
soak omap ./internal/engine/omap 'TestAgainstPlainMap|TestBag'
soak slab ./internal/engine/slab 'Test.*'
soak store ./internal/engine/store 'TestIndexAgainstScan'
soak query ./internal/engine/query 'TestIncrementalMatchesNaive'
soak protocol ./internal/ads/protocol 'TestProxyEndsWithTheLastState'
soak subscriptions ./internal/ads/protocol 'TestWhoeverSubscribesHas'
soak class ./internal/xds/class 'TestIncrementalIsCold'
soak cut ./internal/xds/class 'TestCutBuildsAreCold'
soak accepted ./e2e/accepted 'TestEnvoyLoadsWhatIsAccepted' test
if [ "$ran" = 0 ]; then
  echo "soak: ONLY=$ONLY matches no oracle" >&2
  exit 1
fi
if [ ${#failed[@]} -gt 0 ]; then
  echo "soak: failed: ${failed[*]}" >&2
  exit 1
fi
echo "soak: $ran oracles, nothing found"
