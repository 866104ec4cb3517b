package telemetry

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	telemetryapi "istio.io/api/telemetry/v1alpha1"

	view "github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// TestSharedFilter: filter chains that have the same filter get their loggers once each, and the filter stays as it was.
func TestSharedFilter(t *testing.T) {
	b := builder{Key: Key{Side: view.Server}}
	s := Settings{stats: b.stats([]view.Metric{{ID: telemetryapi.MetricSelector_REQUEST_COUNT}}, false), measured: true}
	shared := &listenerv3.Filter{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Pack(&hcmv3.HttpConnectionManager{StatPrefix: "in"})}}
	l := &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{shared}}, {Filters: []*listenerv3.Filter{shared}}}}
	s.Apply(l)
	loggers := func(f *listenerv3.Filter) int {
		m := new(hcmv3.HttpConnectionManager)
		if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
			t.Fatal(err)
		}
		return len(m.GetAccessLog())
	}
	if first, second, was := loggers(l.FilterChains[0].Filters[0]), loggers(l.FilterChains[1].Filters[0]), loggers(shared); first != 1 || second != 1 || was != 0 {
		t.Errorf("the chains have %d and %d loggers, and the filter that they had has %d; want 1, 1, 0", first, second, was)
	}
}
