package traffic

import (
	"fmt"

	networking "istio.io/api/networking/v1alpha3"
)

// TLSField is the path of the mode of TLS settings in the rule that they are from; empty if the rule does not have them.
func TLSField(rule *networking.DestinationRule, tls *networking.ClientTLSSettings) string {
	within := func(p *networking.TrafficPolicy, at string) string {
		if p.GetTls() == tls {
			return at + ".tls.mode"
		}
		for n, l := range p.GetPortLevelSettings() {
			if l.GetTls() == tls {
				return fmt.Sprintf("%s.portLevelSettings[%d].tls.mode", at, n)
			}
		}
		return ""
	}
	if tls == nil {
		return ""
	}
	if field := within(rule.GetTrafficPolicy(), "spec.trafficPolicy"); field != "" {
		return field
	}
	for n, subset := range rule.GetSubsets() {
		if field := within(subset.GetTrafficPolicy(), fmt.Sprintf("spec.subsets[%d].trafficPolicy", n)); field != "" {
			return field
		}
	}
	return ""
}
