#!/bin/sh
# registries.sh: gets the servers with which registries are tested into .tools/registries, once. Consul is built from its module (some minutes; its
# licence permits tests, and no part of it is in the product); ZooKeeper comes from Debian. `registries.sh nacos` also builds rnacos, which speaks the
# protocols of Nacos, with Rust's cargo: about a quarter of an hour. Tests skip what is missing, with a reason.
set -eu
cd "$(dirname "$0")/.."
to=$PWD/.tools/registries
consul=v1.22.7
mkdir -p "$to"
if [ ! -x "$to/consul" ]; then
  echo "registries: building Consul $consul, which takes some minutes"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cat > "$work/go.mod" <<MOD
module registries

go 1.26

require (
	github.com/hashicorp/consul $consul
	github.com/hashicorp/consul/api v1.34.5 // the commands do not compile with the version that $consul asks for
)

exclude (
	github.com/hashicorp/go-msgpack v1.1.5
	github.com/hashicorp/go-msgpack v1.1.6
)
MOD
  printf '//go:build tools\n\npackage registries\n\nimport _ "github.com/hashicorp/consul"\n' > "$work/tools.go"
  (cd "$work" && GOTOOLCHAIN=auto go build -mod=mod -trimpath -ldflags '-s -w' -o "$to/consul" github.com/hashicorp/consul)
fi
if [ ! -e /usr/share/java/zookeeper.jar ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends zookeeper
  else
    echo "registries: no ZooKeeper: install the package zookeeper of Debian; its tests are skipped until then"
  fi
fi
rnacos=0.8.8
if [ "${1:-}" = nacos ] && [ ! -x "$to/rnacos" ]; then
  if ! command -v cargo > /dev/null; then
    echo "registries: no Nacos: install Rust's cargo, which builds rnacos $rnacos; its tests are skipped until then"
  else
    echo "registries: building rnacos $rnacos, which takes about a quarter of an hour"
    built=$(mktemp -d)
    trap 'rm -rf "${work:-}" "$built"' EXIT
    cargo install --quiet --locked --root "$built" "rnacos@$rnacos"
    cp "$built/bin/rnacos" "$to/rnacos.new"
    mv "$to/rnacos.new" "$to/rnacos"
  fi
fi
