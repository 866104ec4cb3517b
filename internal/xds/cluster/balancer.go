package cluster

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// setLoadBalancing sets how a cluster chooses among its endpoints.
func (t translation) setLoadBalancing(c *clusterv3.Cluster, s traffic.Settings) {
	if c.LbPolicy == clusterv3.Cluster_CLUSTER_PROVIDED {
		return
	}
	sessions := t.s.Session != (mesh.Session{}) && t.tables.Sessions()
	if sessions {
		commonLbConfig(c).OverrideHostStatus = envoy.SessionStatuses()
	}
	if sessions || t.s.OfCluster() || t.tables.Unready() == mesh.UnreadyAlways { // otherwise Envoy uses endpoints that are not ready, or that end, while fewer than half of all are healthy
		commonLbConfig(c).HealthyPanicThreshold = &typev3.Percent{}
	}
	lb := s.LoadBalancer
	p := t.traffic.Preference(t.r, t.s.Near, s)
	shares := p != nil && len(p.Shares) > 0
	if use := lb.GetBackendUtilization(); use != nil {
		setUtilization(c, use, slowStart(lb), shares)
		return
	}
	if hash := lb.GetConsistentHash(); hash != nil {
		setConsistentHash(c, hash)
	} else {
		setSimple(c, lb)
	}
	if shares {
		commonLbConfig(c).LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
	if n := lb.GetZoneAwareLbSetting().GetMinClusterSize(); n != nil {
		commonLbConfig(c).LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{
			ZoneAwareLbConfig: &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{MinClusterSize: wrapperspb.UInt64(uint64(n.Value))},
		}
	}
}

func commonLbConfig(c *clusterv3.Cluster) *clusterv3.Cluster_CommonLbConfig {
	if c.CommonLbConfig == nil {
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{}
	}
	return c.CommonLbConfig
}

func setSimple(c *clusterv3.Cluster, lb *networking.LoadBalancerSettings) {
	slow := slowStart(lb)
	switch lb.GetSimple() {
	case networking.LoadBalancerSettings_ROUND_ROBIN:
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{
				RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slow},
			}
		}
	case networking.LoadBalancerSettings_RANDOM:
		c.LbPolicy = clusterv3.Cluster_RANDOM
	default:
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slow},
			}
		}
	}
}

// defaultWarmupPercent is the percentage of its share that a new endpoint starts with.
const defaultWarmupPercent = 10

// slowStart is how the traffic of a new endpoint grows. nil means that it has its full share at once.
func slowStart(lb *networking.LoadBalancerSettings) *clusterv3.Cluster_SlowStartConfig {
	w := lb.GetWarmup()
	if w == nil {
		if d := lb.GetWarmupDurationSecs(); d != nil { // deprecated, and still in use
			return &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: d}
		}
		return nil
	}
	slow := &clusterv3.Cluster_SlowStartConfig{
		SlowStartWindow: w.Duration, MinWeightPercent: &typev3.Percent{Value: defaultWarmupPercent},
	}
	if p := w.MinimumPercent; p != nil {
		slow.MinWeightPercent.Value = p.Value
	}
	if a := w.Aggression; a != nil {
		slow.Aggression = &corev3.RuntimeDouble{DefaultValue: a.Value, RuntimeKey: slowStartKey}
	}
	return slow
}

// slowStartKey is the runtime key that Envoy requires. Nothing sets it.
const slowStartKey = "upstream.slow_start.aggression"

// The sizes of hash rings.
const (
	defaultRing = 1024
	maxRing     = 8 << 20 // the maximum of Envoy
)

func setConsistentHash(c *clusterv3.Cluster, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	if m := h.GetMaglev(); m != nil {
		c.LbPolicy = clusterv3.Cluster_MAGLEV
		if m.TableSize > 0 {
			c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
				MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(nextPrime(m.TableSize))},
			}
		}
		return
	}
	size := h.GetRingHash().GetMinimumRingSize()
	if h.GetRingHash() == nil {
		size = h.MinimumRingSize //nolint:staticcheck // deprecated, and still in use
	}
	if size == 0 {
		size = defaultRing
	}
	c.LbPolicy = clusterv3.Cluster_RING_HASH
	c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{
		RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(min(size, maxRing))},
	}
}

// nextPrime is the smallest prime not less than n. Envoy accepts only primes as the size of a Maglev table.
func nextPrime(n uint64) uint64 {
	for ; ; n++ {
		prime := n > 1
		for d := uint64(2); d*d <= n && prime; d++ {
			prime = n%d != 0
		}
		if prime {
			return n
		}
	}
}

// enforceAlways ejects an endpoint whenever the limit is reached, in percent; enforceNever only counts.
const (
	enforceAlways = 100
	enforceNever  = 0
)

// setOutlierDetection ejects endpoints that answer with errors. Detection by success rate stays off, because the API has
// no setting for it.
func (t translation) setOutlierDetection(c *clusterv3.Cluster, o *networking.OutlierDetection) {
	if o == nil {
		return
	}
	out := &clusterv3.OutlierDetection{
		EnforcingSuccessRate: envoy.Uint(enforceNever), Interval: o.Interval, BaseEjectionTime: o.BaseEjectionTime,
	}
	enforced := func(n uint32) *wrapperspb.UInt32Value {
		if n > 0 {
			return envoy.Uint(enforceAlways)
		}
		return envoy.Uint(enforceNever)
	}
	if n := o.Consecutive_5XxErrors; n != nil {
		out.Consecutive_5Xx, out.EnforcingConsecutive_5Xx = n, enforced(n.Value)
	}
	gateway := o.ConsecutiveGatewayErrors
	if n := o.ConsecutiveErrors; n > 0 && gateway == nil { //nolint:staticcheck // deprecated, and still in use
		gateway = envoy.Uint(uint32(n))
	}
	if gateway != nil {
		out.ConsecutiveGatewayFailure, out.EnforcingConsecutiveGatewayFailure = gateway, enforced(gateway.Value)
	}
	if n := o.MaxEjectionPercent; n > 0 {
		out.MaxEjectionPercent = envoy.Uint(min(uint32(n), 100))
	}
	if o.SplitExternalLocalOriginErrors {
		out.SplitExternalLocalOriginErrors = true
		out.EnforcingLocalOriginSuccessRate = envoy.Uint(enforceNever)
		if n := o.ConsecutiveLocalOriginFailures.GetValue(); n > 0 {
			out.ConsecutiveLocalOriginFailure, out.EnforcingConsecutiveLocalOriginFailure = envoy.Uint(n), envoy.Uint(enforceAlways)
		}
	}
	c.OutlierDetection = out
	// Without a minimum, ejected endpoints stay ejected however few others remain.
	least := min(max(o.MinHealthPercent, 0), 100)
	if t.tables.Unready() == mesh.UnreadyAlways { // Envoy would use endpoints that are not ready, too
		least = 0
	}
	commonLbConfig(c).HealthyPanicThreshold = &typev3.Percent{Value: float64(least)}
}
