#!/usr/bin/env bash
# Installs the programs of Debian packages that tests use and that are missing, where that takes no question (root on Debian): `ip`, `iptables` and
# `nft`, with which the exam and the tests of capture make network namespaces; or, with the argument `clients`, clients of gateways: a browser and a
# load generator. It never fails: without these programs their tests are skipped, and say why.
set -uo pipefail
missing=()
needs() { # program package
  command -v "$1" >/dev/null || missing+=("$2")
}
[ "$(id -u)" = 0 ] || exit 0 # nothing can be installed, and no namespace made, without root
if [ "${1:-}" = clients ]; then
  needs chromium chromium
  needs certutil libnss3-tools
  needs h2load nghttp2-client
else
  needs ip iproute2
  needs iptables-restore iptables
  needs nft nftables
fi
[ ${#missing[@]} = 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "packages: missing: ${missing[*]}; without them some tests are skipped"
  exit 0
fi
echo "packages: installing ${missing[*]}, for tests of namespaces, capture and clients"
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null; then
  echo "packages: could not install ${missing[*]}: some tests will be skipped"
fi
exit 0
