#!/bin/sh
# Runs the programs of unpacked images, pilot in $1, proxyv2 in $2 and install-cni in $3, as containers would: with nothing but the files of the image, as its user,
# and for the capture of traffic as root. It runs in namespaces of its own.
set -eu
pilot=$1 proxy=$2 cni=$3
mount --make-rprivate /
for root in "$pilot" "$proxy" "$cni"; do
  mkdir -p "$root/proc" "$root/dev"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
done
ip link set lo up
ip address add 10.9.9.9/32 dev lo
path=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
inside() { # ROOT USER COMMAND...
  root=$1 user=$2
  shift 2
  env -i $path POD_NAME=web-1 POD_NAMESPACE=shop INSTANCE_IP=10.9.9.9 PROXY_CONFIG='{"discoveryAddress":"127.0.0.1:15010","concurrency":1}' \
    /usr/sbin/chroot --userspec="$user:$user" "$root" "$@"
}
say() { echo "== $*"; }

say versions
inside "$pilot" 1337 pilot-discovery version
inside "$proxy" 1337 pilot-agent version
inside "$proxy" 1337 envoy --version
inside "$cni" 0 pilot-cni version
inside "$cni" 0 iptables-nft --version
inside "$proxy" 0 iptables-nft --version
inside "$proxy" 0 iptables-legacy --version
inside "$proxy" 0 nft --version

say ready
mkdir "$pilot/config"
inside "$pilot" 1337 pilot-discovery discovery --configDir=/config --registries= --stateDir=/var/lib/pilot --grpcAddr=127.0.0.1:15010 --secureGRPCAddr= \
  --httpAddr=127.0.0.1:8080 --httpsAddr= --monitoringAddr= --ctrlz_port=0 >"$pilot/log" 2>&1 &
inside "$proxy" 1337 pilot-agent proxy sidecar >"$proxy/log" 2>&1 &
inside "$proxy" 1337 pilot-agent wait --url http://127.0.0.1:15021/healthz/ready --timeoutSeconds 60 || {
  cat "$pilot/log" "$proxy/log"
  exit 1
}

say capture by iptables
inside "$proxy" 0 pilot-agent istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -x '' -b '*' -d 15090,15021,15020
inside "$proxy" 0 iptables-save | grep ISTIO_OUTPUT
inside "$proxy" 0 pilot-agent istio-clean-iptables
say capture by nftables
inside "$proxy" 0 pilot-agent istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -x '' -b '*' -d 15090,15021,15020 --native-nftables
inside "$proxy" 0 nft list tables | grep pilot-capture
say passed
