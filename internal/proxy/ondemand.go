package proxy

import (
	"fmt"
	"strings"
)

// OnDemand says whether a gateway gets the certificates of its hosts when clients ask for them, and not with its listeners. A proxy keeps
// the choice as long as it lives: another one replaces the listener, which ends all connections to its port.
type OnDemand uint8

// The choices.
const (
	// OnDemandOff: each host with TLS has a filter chain of its own, which names its certificate.
	OnDemandOff OnDemand = iota
	// OnDemandByCount: it depends on the number of hosts at the time when the proxy connects. See OnDemandHosts.
	OnDemandByCount
	// OnDemandOn: hosts that need nothing but a certificate share one filter chain.
	OnDemandOn
)

// OnDemandHosts is the number of hosts above which a gateway gets certificates on demand unless its metadata says otherwise. With 100 hosts, an Envoy
// needs about 30 ms for a listener with another host; with 1,000 hosts, it needs 300 ms.
const OnDemandHosts = 100

// onDemandKey is the name of the choice in the metadata of a node: "true", "false", or nothing.
const onDemandKey = "ON_DEMAND_CERTIFICATES"

// The minor versions of Envoy 1 with which certificates on demand were measured. Older ones refuse the listener.
const (
	onDemandFirst = 37
	onDemandLast  = 40
)

// demandKey is the name of the choice of sidecars in the metadata of a node: "true" if they ask for the hosts that their workload uses.
const demandKey = "ON_DEMAND_HOSTS"

// The minor versions of Envoy 1 with which hosts on demand were measured. Others get all hosts.
const (
	demandFirst = 40
	demandLast  = 40
)

// parseOnDemand reads the choice of a gateway with an Envoy of a minor version.
func parseOnDemand(text string, envoy uint32) (OnDemand, error) {
	known := envoy >= onDemandFirst && envoy <= onDemandLast
	switch {
	case strings.EqualFold(text, "false") || text == "0" || text == "" && !known:
		return OnDemandOff, nil
	case text == "":
		return OnDemandByCount, nil
	case !isTrue(text):
		return 0, fmt.Errorf("%s: %q is neither true nor false", onDemandKey, text)
	case envoy > 0 && envoy < onDemandFirst:
		return OnDemandOff, nil // such an Envoy would refuse the listener
	}
	return OnDemandOn, nil
}
