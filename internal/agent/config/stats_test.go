package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pilotmesh/pilot/internal/agent/boot"
)

// TestStats: annotations replace lists of the same kind, and values that Envoy would refuse are refused.
func TestStats(t *testing.T) {
	const address = "discoveryAddress: '10.0.0.1:15010'"
	for _, c := range []struct {
		proxy, annotations string
		want               boot.Stats
		err                string
	}{
		{address, "", boot.Stats{}, ""},
		{address + ", proxyStatsMatcher: {inclusionPrefixes: [a], inclusionRegexps: ['b.*']}", `sidecar.istio.io/statsInclusionPrefixes="c,d"` + "\n" +
			`sidecar.istio.io/statsInclusionSuffixes="e"`, boot.Stats{Prefixes: []string{"c", "d"}, Suffixes: []string{"e"}, Regexes: []string{"b.*"}}, ""},
		{address, `sidecar.istio.io/statsHistogramBuckets="{\"x\":[0.5,5]}"`, boot.Stats{Buckets: map[string][]float64{"x": {0.5, 5}}}, ""},
		{address + ", proxyStatsMatcher: {inclusionRegexps: ['(']}", "", boot.Stats{}, "proxyStatsMatcher.inclusionRegexps: error parsing regexp: missing closing )"},
		{address, `sidecar.istio.io/statsInclusionPrefixes="a,"`, boot.Stats{}, "sidecar.istio.io/statsInclusionPrefixes: an element is empty"},
		{address, `sidecar.istio.io/statsHistogramBuckets="{\"istiocustom\":[1]}"`, boot.Stats{Buckets: map[string][]float64{"istio_": {1}}}, ""},
		{address, `sidecar.istio.io/statsHistogramBins="10"`, boot.Stats{Bins: 10}, ""},
		{address, `sidecar.istio.io/statsHistogramBins="few"`, boot.Stats{}, `"few" is not a number from 1 to 65535`},
		{address, `sidecar.istio.io/statsHistogramBuckets="[1]"`, boot.Stats{}, `write it as {"cluster.outbound":[1,10,100]}`},
		{address, `sidecar.istio.io/statsHistogramBuckets="{\"x\":[5,5]}"`, boot.Stats{}, `"x": [5 5] is not a list of ascending numbers above 0`},
		{address, `sidecar.istio.io/statsHistogramBuckets="{\"x\":[0]}"`, boot.Stats{}, `"x": [0] is not a list of ascending numbers above 0`},
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
			if diff := cmp.Diff(c.want, s.Stats, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("%s %s: %s", c.proxy, c.annotations, diff)
			}
		}
	}
}

// TestTimes: times that Envoy would refuse are refused.
func TestTimes(t *testing.T) {
	for annotations, want := range map[string]string{
		`sidecar.istio.io/statsFlushInterval="1s"` + "\n" + `sidecar.istio.io/statsEvictionInterval="3s"`: "",
		`sidecar.istio.io/statsEvictionInterval="10s"`:                                                    "",
		`sidecar.istio.io/statsEvictionInterval="7s"`:                                                     "statsEvictionInterval: 7s is not a multiple of 5s, the time between two flushes",
		`sidecar.istio.io/statsFlushInterval="6m"`:                                                        "statsFlushInterval: 6m0s is longer than 5m0s",
		`sidecar.istio.io/statsFlushInterval="often"`:                                                     `statsFlushInterval: "often" is not a duration`,
	} {
		_, err := load(t, map[string]string{annotationsFile: annotations}, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", annotations, err, want)
		}
	}
}

// TestStatsdName: if a name cannot be resolved, only the statistics are not sent.
func TestStatsdName(t *testing.T) {
	s := mustLoad(t, nil, nil, "--statsdUdpAddress=statsd.invalid:8125")
	if s.Stats.Statsd.IsValid() || !slices.ContainsFunc(s.Warnings(), func(w string) bool {
		return strings.HasPrefix(w, `statsdUdpAddress: no statistics are sent, because "statsd.invalid" cannot be resolved`)
	}) {
		t.Errorf("%v, %q", s.Stats.Statsd, s.Warnings())
	}
	if s = mustLoad(t, nil, nil, "--statsdUdpAddress=localhost:8125"); s.Stats.Statsd.Port() != 8125 || !s.Stats.Statsd.Addr().IsLoopback() {
		t.Errorf("%v, %q", s.Stats.Statsd, s.Warnings())
	}
}
