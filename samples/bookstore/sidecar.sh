#!/usr/bin/env bash
# Runs a proxy beside a workload of this sample, on this machine: sidecar.sh NAME ACCOUNT ADDRESS N [router]
#
# ADDRESS is the loopback address of the workload in config/services.yaml. N is a digit: the proxy's own ports end in it. The control plane must run on
# this host, and for this user, because its state folder has the key that signs tokens. ENVOY names an Envoy, unless one is on the PATH.
set -euo pipefail
name=$1 account=$2 address=$3 n=$4 role=${5:-sidecar}
token=$(mktemp)
pilotctl token create --service-account "bookstore/$account" > "$token"
# What the description of a pod says on Kubernetes.
export POD_NAME=$name POD_NAMESPACE=bookstore SERVICE_ACCOUNT=$account INSTANCE_IP=$address
# Nothing captures traffic here, and many agents share one host.
export ISTIO_META_INTERCEPTION_MODE=NONE PROXY_XDS_DEBUG_VIA_AGENT=false XDS_ROOT_CA=$HOME/.local/state/pilot/root-cert.pem
exec pilot-agent proxy "$role" --discoveryAddress=127.0.0.1:15012 --controlPlaneAuthPolicy=MUTUAL_TLS --tokenFile="$token" --concurrency=1 \
  --configPath="${TMPDIR:-/tmp}/bookstore-$name" --proxyAdminPort="1500$n" --statusPort="1502$n" --envoyStatusPort="1512$n" --envoyPrometheusPort="1509$n"
