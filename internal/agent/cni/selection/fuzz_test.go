package selection

import (
	"net/netip"
	"strings"
	"testing"
)

var addresses = []netip.Addr{netip.MustParseAddr("10.1.1.1")}

// FuzzFlags: for any arguments of a pod, the plugin installs rules in the network namespace of its choice.
func FuzzFlags(f *testing.F) {
	f.Add("istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x  -b * -d 15090,15021 --run-validation --skip-rule-apply", "ISTIO_META_DNS_CAPTURE=true")
	f.Add("istio-iptables --network-namespace=/x -n", "NETWORK_NAMESPACE=/y")
	f.Add("istio-iptables -- -n", "")
	f.Fuzz(func(t *testing.T, args, env string) {
		flags, err := Flags(pod(strings.Split(args, " "), strings.Split(env, "\n")), "/own")
		if err != nil {
			return
		}
		o, _, _, err := flags.CleanupOptions()
		if flags.NetworkNamespace() != "/own" || err == nil && (o.DryRun || o.SkipApply || o.CleanupOnly || o.Force || !o.OwnLock) {
			t.Errorf("%q %q: %s %+v", args, env, flags.NetworkNamespace(), o)
		}
	})
}
