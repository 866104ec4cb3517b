package cluster

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	weightedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	localityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// setUtilization weights endpoints by the utilization that their responses report (ORCA). If the rule distributes traffic among localities
// (shares), Envoy chooses the locality first. The policy has no zone-aware mode, so a zoneAwareLbSetting has no effect.
func setUtilization(c *clusterv3.Cluster, use *networking.LoadBalancerSettings_BackendUtilizationLB, slow *clusterv3.Cluster_SlowStartConfig, shares bool) {
	weighted := &weightedv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod: use.WeightStabilizationPeriod, WeightExpirationPeriod: use.WeightExpirationPeriod, WeightUpdatePeriod: use.WeightUpdatePeriod,
		// Envoy's default is a penalty of 1, the default of the API is none.
		ErrorUtilizationPenalty:            wrapperspb.Float(float32(use.ErrorUtilizationPenaltyPercent) / 100),
		MetricNamesForComputingUtilization: use.MetricNamesForComputingUtilization,
		SlowStartConfig:                    warmup(slow),
	}
	policy := balancing("client_side_weighted_round_robin", weighted)
	if shares {
		policy = balancing("wrr_locality", &localityv3.WrrLocality{EndpointPickingPolicy: policy})
	}
	c.LbPolicy, c.LoadBalancingPolicy = clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG, policy
}

// warmup is a slow start in the form of policies that are extensions.
func warmup(slow *clusterv3.Cluster_SlowStartConfig) *commonv3.SlowStartConfig {
	if slow == nil {
		return nil
	}
	return &commonv3.SlowStartConfig{SlowStartWindow: slow.SlowStartWindow, Aggression: slow.Aggression, MinWeightPercent: slow.MinWeightPercent}
}

// balancing returns the load-balancing policy with the last part of the name of its extension.
func balancing(name string, config proto.Message) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "envoy.load_balancing_policies." + name, TypedConfig: envoy.Pack(config)},
	}}}
}
