package route

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// retries is the retry policy of a rule; nil means no retries. If a hash of the request chooses the endpoint, a retry
// goes to the same endpoint, unless the rule says otherwise.
func retries(rule *networking.HTTPRetry, hashed bool) *routev3.RetryPolicy {
	if rule != nil && rule.Attempts <= 0 {
		return nil
	}
	p := envoy.RetryPolicy()
	if !hashed {
		p.RetryHostPredicate = envoy.AvoidPreviousHosts()
	}
	if rule == nil {
		return p
	}
	p.NumRetries = envoy.Uint(uint32(rule.Attempts))
	p.PerTryTimeout = rule.PerTryTimeout
	envoy.SetRetryConditions(p, rule.RetryOn)
	switch avoid := rule.RetryIgnorePreviousHosts; {
	case avoid == nil:
	case avoid.Value:
		p.RetryHostPredicate = envoy.AvoidPreviousHosts()
	default:
		p.RetryHostPredicate = nil
	}
	if rule.RetryRemoteLocalities.GetValue() {
		p.RetryPriority = envoy.AvoidPreviousPriorities()
	}
	envoy.SetRetryBackoff(p, rule.Backoff)
	return p
}
