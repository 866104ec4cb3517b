package settings

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags holds the values of the flags as they were given. The fields mean the same as the fields of Settings and Options.
type Flags struct {
	outboundPort, inboundPort, tunnelPort    string
	uid, gid, user                           string
	mode, mark, table                        string
	inboundPorts, inboundPortsExclude        string
	outboundPorts, outboundPortsExclude      string
	outboundRanges, outboundRangesExclude    string
	groups, groupsExclude, loopback          string
	excludeInterfaces, virtualInterfaces     string
	redirectDNS, captureAllDNS, dropInvalid  bool
	dualStack, cniMode                       bool
	dryRun, skipApply, validate, reconcile   bool
	cleanupOnly, force, native, traceLogging bool
	binary, networkNamespace                 string
	probePort                                uint16
	probeTimeout                             time.Duration

	set *pflag.FlagSet
}

// Variables that have no flag.
const (
	envUser          = "ENVOY_USER"
	envGroups        = "ISTIO_OUTBOUND_OWNER_GROUPS"
	envGroupsExclude = "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"
	envLoopback      = "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"
)

// noVariable are flags that no variable sets. Kubernetes sets ENVOY_PORT to another value where a service is called "envoy".
var noVariable = []string{"envoy-port", "help"}

// alsoVariable has second names of variables, which other programs share.
var alsoVariable = map[string]string{
	"redirect-dns": "ISTIO_META_DNS_CAPTURE",
	"drop-invalid": "INVALID_DROP",
	"dual-stack":   "ISTIO_DUAL_STACK",
}

// NewFlags defines the flags in set.
func NewFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set, user: "istio-proxy", groups: "*", loopback: "127.0.0.1/32"}
	set.StringVarP(&f.outboundPort, "envoy-port", "p", "15001", "port of the proxy that takes captured outbound connections")
	set.StringVarP(&f.inboundPort, "inbound-capture-port", "z", "15006", "port of the proxy that takes captured inbound connections")
	set.StringVarP(&f.tunnelPort, "inbound-tunnel-port", "e", "15008", "port of the proxy that callers connect to themselves")
	set.StringVarP(&f.uid, "proxy-uid", "u", "", "users whose own connections are not captured (default the user ENVOY_USER, or 1337)")
	set.StringVarP(&f.gid, "proxy-gid", "g", "", "groups whose own connections are not captured (default as --proxy-uid)")
	set.StringVarP(&f.mode, "istio-inbound-interception-mode", "m", "", "how inbound connections reach the proxy: REDIRECT (default) or TPROXY")
	set.StringVarP(&f.inboundPorts, "istio-inbound-ports", "b", "", `inbound ports to capture, or "*"; none if empty`)
	set.StringVarP(&f.inboundPortsExclude, "istio-local-exclude-ports", "d", "", `inbound ports not to capture if --istio-inbound-ports is "*"`)
	set.StringVarP(&f.excludeInterfaces, "istio-exclude-interfaces", "c", "", "network interfaces on which nothing is captured")
	set.StringVarP(&f.outboundRanges, "istio-service-cidr", "i", "", `destinations to capture, as CIDR ranges, or "*"; none if empty`)
	set.StringVarP(&f.outboundRangesExclude, "istio-service-exclude-cidr", "x", "", "destinations not to capture, as CIDR ranges")
	set.StringVarP(&f.outboundPorts, "istio-outbound-ports", "q", "", "outbound ports to capture, whatever the destination")
	set.StringVarP(&f.outboundPortsExclude, "istio-local-outbound-ports-exclude", "o", "", "outbound ports not to capture")
	set.StringVarP(&f.virtualInterfaces, "kube-virt-interfaces", "k", "", "interfaces of virtual machines, from which traffic is outbound")
	set.StringVarP(&f.mark, "istio-inbound-tproxy-mark", "t", "1337", "mark of packets in mode TPROXY")
	set.StringVarP(&f.table, "istio-inbound-tproxy-route-table", "r", "133", "routing table for marked packets in mode TPROXY")
	set.BoolVar(&f.redirectDNS, "redirect-dns", false, "send DNS queries for the servers of /etc/resolv.conf to the agent")
	set.BoolVar(&f.captureAllDNS, "capture-all-dns", false, "with --redirect-dns: send queries for any server to the agent")
	set.BoolVar(&f.dropInvalid, "drop-invalid", false, "drop packets that belong to no connection, instead of letting the kernel reset it")
	set.BoolVar(&f.dualStack, "dual-stack", false, "capture IPv6 as well as IPv4")
	f.apart(set)
	return f
}

// apart defines the flags of Options.
func (f *Flags) apart(set *pflag.FlagSet) {
	set.BoolVarP(&f.dryRun, "dry-run", "n", false, "print what would be done, and change nothing")
	set.BoolVar(&f.skipApply, "skip-rule-apply", false, "change nothing; for --run-validation alone")
	set.BoolVar(&f.validate, "run-validation", false, "connect to the proxy's ports as the proxy's user, and exit with 126 if that is not captured")
	set.Uint16Var(&f.probePort, "iptables-probe-port", 15002, "port that --run-validation connects to")
	set.DurationVar(&f.probeTimeout, "probe-timeout", 5*time.Second, "how long --run-validation tries")
	set.BoolVar(&f.reconcile, "reconcile", false, "replace rules of an earlier capture that differ, instead of failing")
	set.BoolVar(&f.cleanupOnly, "cleanup-only", false, "remove all that captures have made, and make nothing")
	set.BoolVar(&f.force, "force-apply", false, "write the rules even if they seem to be in place, or others are")
	set.BoolVar(&f.native, "native-nftables", false, "use nftables without iptables")
	set.StringVar(&f.binary, "force-iptables-binary", "", "which iptables to use, nft or legacy (default by what the machine has)")
	set.StringVar(&f.networkNamespace, "network-namespace", "", "path of the network namespace to work in (default the present one)")
	set.BoolVar(&f.cniMode, "cni-mode", false, "the file system is the host's: do not wait for its lock of iptables")
	set.BoolVar(&f.traceLogging, "iptables-trace-logging", false, "has no effect")
}

// FromEnvironment sets the flags that were not given from the variables of the process, in the form NAME=VALUE. The variable of
// a flag has its name in capitals, with underscores.
func (f *Flags) FromEnvironment(environ []string) error {
	values := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	for name, to := range map[string]*string{envGroups: &f.groups, envGroupsExclude: &f.groupsExclude} {
		if value, ok := values[name]; ok {
			*to = value
		}
	}
	for name, to := range map[string]*string{envUser: &f.user, envLoopback: &f.loopback} {
		if value := values[name]; value != "" {
			*to = value
		}
	}
	var failed error
	f.set.VisitAll(func(flag *pflag.Flag) {
		for _, name := range noVariable {
			if flag.Name == name {
				return
			}
		}
		for _, name := range []string{strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_")), alsoVariable[flag.Name]} {
			value := values[name]
			if flag.Changed || value == "" || name == "" {
				continue
			}
			if err := f.set.Set(flag.Name, value); err != nil && failed == nil {
				failed = fmt.Errorf("the variable %s=%s cannot be used: it is the flag --%s (%s)", name, value, flag.Name, flag.Usage)
			}
		}
	})
	return failed
}
