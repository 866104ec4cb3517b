package state

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// block is the interface that a traffic policy and its settings for one port have in common.
type block interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetOutlierDetection() *networking.OutlierDetection
	GetTls() *networking.ClientTLSSettings
}

// blocks yields the settings of a rule: for the host, for its subsets, and for ports.
func blocks(d *networking.DestinationRule) func(yield func(block) bool) {
	return func(yield func(block) bool) {
		policies := []*networking.TrafficPolicy{d.GetTrafficPolicy()}
		for _, s := range d.GetSubsets() {
			policies = append(policies, s.GetTrafficPolicy())
		}
		for _, p := range policies {
			if p != nil && !yield(p) {
				return
			}
			for _, l := range p.GetPortLevelSettings() {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// byLocality reports whether a rule may make the choice of endpoints depend on where the client runs. Outlier detection suffices,
// because it enables the locality failover of the mesh.
func byLocality(d *networking.DestinationRule) bool {
	for b := range blocks(d) {
		lb := b.GetLoadBalancer()
		if b.GetOutlierDetection() != nil || lb.GetLocalityLbSetting() != nil || lb.GetZoneAwareLbSetting() != nil {
			return true
		}
	}
	return false
}

// byCredential reports whether a rule names a Secret for TLS. Without a selector only gateways use it.
func byCredential(d *networking.DestinationRule) bool {
	for b := range blocks(d) {
		if b.GetTls().GetCredentialName() != "" && len(d.GetWorkloadSelector().GetMatchLabels()) == 0 {
			return true
		}
	}
	return false
}

// siteLabels yields the labels in the failover priorities of a rule.
func siteLabels(d *networking.DestinationRule) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for b := range blocks(d) {
			lb := b.GetLoadBalancer()
			for _, list := range [][]string{lb.GetLocalityLbSetting().GetFailoverPriority(), lb.GetZoneAwareLbSetting().GetFailoverPriority()} {
				for _, label := range list {
					if !strings.Contains(label, "=") && !yield(label) {
						return
					}
				}
			}
		}
	}
}
