package boot

import (
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	heapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

const (
	connectionMonitor = "envoy.resource_monitors.global_downstream_max_connections"
	heapMonitor       = "envoy.resource_monitors.fixed_heap"

	// unlimited is the largest limit of connections.
	unlimited = 1<<31 - 1
)

// Shares of the heap limit from which Envoy gives free memory back, and from which it refuses requests. A refused request is better than
// Envoy killed by the kernel with all its connections. The shares are Envoy's recommendation for proxies at the edge
// (www.envoyproxy.io/docs/envoy/latest/configuration/best_practices/edge).
const (
	shrinkFrom, refuseFrom = 0.90, 0.98
	heapEvery              = 250 // milliseconds between two checks of the heap
)

// overload limits connections, and the heap if there is a limit for it.
func (c Config) overload() *overloadv3.OverloadManager {
	most := int64(unlimited) // without a limit, Envoy warns that there is none
	if c.MaxConnections > 0 {
		most = int64(c.MaxConnections)
	}
	m := &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name: connectionMonitor,
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: envoy.Pack(&connectionsv3.DownstreamConnectionsConfig{
			MaxActiveDownstreamConnections: most,
		})},
	}}}
	if c.HeapLimit == 0 {
		return m
	}
	m.RefreshInterval = &durationpb.Duration{Nanos: heapEvery * 1e6}
	m.ResourceMonitors = append(m.ResourceMonitors, &overloadv3.ResourceMonitor{
		Name:       heapMonitor,
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: envoy.Pack(&heapv3.FixedHeapConfig{MaxHeapSizeBytes: c.HeapLimit})},
	})
	m.Actions = []*overloadv3.OverloadAction{
		heapAction("envoy.overload_actions.shrink_heap", shrinkFrom), heapAction("envoy.overload_actions.stop_accepting_requests", refuseFrom),
	}
	return m
}

// heapAction returns an action that Envoy takes while the heap has more than a share of its limit.
func heapAction(name string, share float64) *overloadv3.OverloadAction {
	return &overloadv3.OverloadAction{Name: name, Triggers: []*overloadv3.Trigger{{
		Name: heapMonitor, TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: share}},
	}}}
}
