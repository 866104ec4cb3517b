// Package destination answers what a DestinationRule asks for in any of its parts: for the host, for subsets, and for ports.
//
// It has no goroutines.
package destination

import (
	"iter"
	"slices"
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
func blocks(d *networking.DestinationRule) iter.Seq[block] {
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

// ByLocality reports whether a rule may make the choice of endpoints depend on where the client runs. Outlier detection suffices,
// because it enables the locality failover of the mesh.
func ByLocality(d *networking.DestinationRule) bool {
	for b := range blocks(d) {
		lb := b.GetLoadBalancer()
		if b.GetOutlierDetection() != nil || lb.GetLocalityLbSetting() != nil || lb.GetZoneAwareLbSetting() != nil {
			return true
		}
	}
	return false
}

// ByCredential reports whether gateways use a Secret that a rule names for TLS: the rule has no selector then.
func ByCredential(d *networking.DestinationRule) bool {
	return len(d.GetWorkloadSelector().GetMatchLabels()) == 0 && len(slices.Collect(Credentials(d))) > 0
}

// Credentials yields the names in credentialName of a rule.
func Credentials(d *networking.DestinationRule) iter.Seq[string] {
	return func(yield func(string) bool) {
		for b := range blocks(d) {
			if name := b.GetTls().GetCredentialName(); name != "" && !yield(name) {
				return
			}
		}
	}
}

// ConfigMapScheme begins a credentialName that names a ConfigMap with the certificates of authorities; NAMESPACE/NAME follow.
const ConfigMapScheme = "configmap://"

// ConfigMaps yields the credentialNames of a rule that name a ConfigMap of the namespace of the rule.
func ConfigMaps(namespace string, d *networking.DestinationRule) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range Credentials(d) {
			if strings.HasPrefix(name, ConfigMapScheme+namespace+"/") && !yield(name) {
				return
			}
		}
	}
}

// SiteLabels yields the labels in the failover priorities of a rule.
func SiteLabels(d *networking.DestinationRule) iter.Seq[string] {
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
