# What a user does with the package, as doc/vm.md tells it.
set -eux
trap 'code=$?; [ $code = 0 ] || journalctl --no-pager -n 40 -o cat -u pilot-agent -u control' EXIT
say() { echo "== $*"; }
has_rules() { iptables-save | grep -q ISTIO_OUTPUT; }
ready() { pilot-agent wait --url http://127.0.0.1:15021/healthz/ready --timeoutSeconds 20; }
pid() { systemctl show -p MainPID --value pilot-agent; }

ip link set lo up
ip address add 10.9.9.9/32 dev lo
cp -p /etc/passwd /etc/group /etc/hosts /run
touch /etc/hosts
(cd /media && find . | sort) > /run/before

say install
dpkg -i /mnt/*.deb
id istio-proxy
systemd-analyze verify /usr/lib/systemd/system/pilot-agent.service
systemctl start pilot-agent
[ "$(systemctl is-active pilot-agent || true)" = inactive ] # there is no cluster.env
test -z "$(iptables-save | grep ISTIO)"

say configure
systemd-run --unit=control --setenv=HOME=/root /mnt/pilot-discovery discovery --configDir=/mnt/config --registries= --stateDir=/run/state \
  --grpcAddr= --secureGRPCAddr=:15012 --httpAddr=127.0.0.1:8080 --httpsAddr= --monitoringAddr= --ctrlz_port=0
pilot-agent wait --url http://127.0.0.1:8080/ready --timeoutSeconds 60
/mnt/pilotctl x workload entry configure -f /mnt/group.yaml --stateDir /run/state --ingressIP 127.0.0.1 --internalIP 10.9.9.9 -o /run/files
cd /run/files
install -m 0644 cluster.env /var/lib/istio/envoy/cluster.env
install -m 0644 mesh.yaml /etc/istio/config/mesh
install -o istio-proxy -m 0644 root-cert.pem /etc/certs/root-cert.pem
install -o istio-proxy -m 0600 istio-token /var/run/secrets/tokens/istio-token
cat hosts >> /etc/hosts
echo ENVOY=/mnt/envoy >> /var/lib/istio/envoy/sidecar.env

say start
systemctl enable --now pilot-agent
ready
has_rules
[ "$(stat -c %U "/proc/$(pid)")" = istio-proxy ]
[ "$(stat -c '%U %a' /etc/certs/identity.pem)" = 'istio-proxy 600' ]

say restart without a token
rm /var/run/secrets/tokens/istio-token
systemctl restart pilot-agent
ready
journalctl -u pilot-agent --no-pager | grep 'the certificate of the workload is kept'

say killed
before=$(pid)
kill -9 "$before"
until [ "$(pid)" != 0 ] && [ "$(pid)" != "$before" ]; do sleep 0.1; done
ready
has_rules

say stop
systemctl stop pilot-agent
test -z "$(iptables-save | grep ISTIO)"
test -z "$(pgrep -u istio-proxy)"

say remove
systemctl start pilot-agent
ready
dpkg -r pilot-agent
test -z "$(iptables-save | grep ISTIO)"
test -z "$(pgrep -u istio-proxy)"
test ! -e /usr/bin/pilot-agent
test -e /var/lib/istio/envoy/cluster.env # until it is purged

say purge
dpkg -P pilot-agent
cp -p /run/hosts /etc/hosts
cmp /run/passwd /etc/passwd
cmp /run/group /etc/group
test -z "$(ls -A /run/secrets 2>/dev/null)"
systemctl stop control
# What dpkg and adduser keep for themselves, and logs, are not of the package.
(cd /media && find . | sort) | comm -13 /run/before - |
  grep -vE '^\./(var/lib/dpkg|var/log|var/cache|var/lib/systemd|etc/(passwd|group|shadow|gshadow|subuid|subgid|\.pwd)[^/]*$)' > /mnt/left || true
say done
touch /mnt/done
