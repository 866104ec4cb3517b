#!/usr/bin/env bash
# Makes sure that `ip`, `iptables` and `nft` are there, with which the exam and the tests of traffic capture make their network
# namespaces: installs them where that takes no question (root on Debian). It never fails: without them these tests are skipped, and
# say why.
set -uo pipefail
[ "$(id -u)" = 0 ] || exit 0 # nothing to be made without root either
missing=()
command -v ip >/dev/null || missing+=(iproute2)
command -v iptables-restore >/dev/null || missing+=(iptables)
command -v nft >/dev/null || missing+=(nftables)
[ ${#missing[@]} = 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "namespaces: missing: ${missing[*]}; without them the exam or the tests of capture are skipped"
  exit 0
fi
echo "namespaces: installing ${missing[*]}, for the exam and the tests of capture"
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null; then
  echo "namespaces: could not install ${missing[*]}: the exam or the tests of capture will be skipped"
fi
exit 0
