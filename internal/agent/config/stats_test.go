package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStats: annotations replace lists of the same kind, and what Envoy would refuse is refused.
func TestStats(t *testing.T) {
	const address = "discoveryAddress: '10.0.0.1:15010'"
	for _, c := range []struct {
		proxy, annotations string
		want               Stats
		err                string
	}{
		{address, "", Stats{}, ""},
		{address + ", proxyStatsMatcher: {inclusionPrefixes: [a], inclusionRegexps: ['b.*']}", `sidecar.istio.io/statsInclusionPrefixes="c,d"` + "\n" +
			`sidecar.istio.io/statsInclusionSuffixes="e"`, Stats{Prefixes: []string{"c", "d"}, Suffixes: []string{"e"}, Regexes: []string{"b.*"}}, ""},
		{address, `sidecar.istio.io/statsHistogramBuckets="{\"x\":[0.5,5]}"`, Stats{Buckets: map[string][]float64{"x": {0.5, 5}}}, ""},
		{address + ", proxyStatsMatcher: {inclusionRegexps: ['(']}", "", Stats{}, "proxyStatsMatcher.inclusionRegexps: error parsing regexp: missing closing )"},
		{address, `sidecar.istio.io/statsInclusionPrefixes="a,"`, Stats{}, "sidecar.istio.io/statsInclusionPrefixes: an element is empty"},
		{address, `sidecar.istio.io/statsHistogramBuckets="[1]"`, Stats{}, `write it as {"cluster.outbound":[1,10,100]}`},
		{address, `sidecar.istio.io/statsHistogramBuckets="{\"x\":[5,5]}"`, Stats{}, `"x": [5 5] is not a list of ascending numbers above 0`},
		{address, `sidecar.istio.io/statsHistogramBuckets="{\"x\":[0]}"`, Stats{}, `"x": [0] is not a list of ascending numbers above 0`},
	} {
		s, err := load(t, map[string]string{annotationsFile: c.annotations}, []string{"PROXY_CONFIG={" + c.proxy + "}"})
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %s: want %q, got %v", c.proxy, c.annotations, c.err, err)
			}
		case err != nil:
			t.Errorf("%s %s: %v", c.proxy, c.annotations, err)
		default:
			if diff := cmp.Diff(c.want, s.Stats); diff != "" {
				t.Errorf("%s %s: %s", c.proxy, c.annotations, diff)
			}
		}
	}
}
