package route

import (
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// retriableStatusCodes is the retry condition that makes Envoy look at the list of status codes.
const retriableStatusCodes = "retriable-status-codes"

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
	if rule.RetryOn != "" {
		p.RetryOn, p.RetriableStatusCodes = splitConditions(rule.RetryOn)
	}
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
	if rule.Backoff != nil {
		p.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: rule.Backoff}
	}
	return p
}

// splitConditions separates the names of conditions from status codes.
func splitConditions(text string) (names string, codes []uint32) {
	var words []string
	listed := false
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if code, err := strconv.ParseUint(word, 10, 16); err == nil {
			codes = append(codes, uint32(code))
		} else if word != "" {
			words = append(words, word)
			listed = listed || word == retriableStatusCodes
		}
	}
	if len(codes) > 0 && !listed {
		words = append(words, retriableStatusCodes)
	}
	return strings.Join(words, ","), codes
}
