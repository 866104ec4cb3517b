package route

import (
	"strconv"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// filterConfigs are the settings of a rule for the HTTP filters before the router, by filter name.
func filterConfigs(rule *networking.HTTPRoute) map[string]*anypb.Any {
	configs := map[string]*anypb.Any{}
	add := func(name string, m proto.Message) { configs[name] = envoy.Pack(m) }
	if rule.Fault != nil {
		add(envoy.FaultFilter, fault(rule.Fault))
	}
	if rule.CorsPolicy != nil {
		add(envoy.CORSFilter, cors(rule.CorsPolicy))
	}
	return configs
}

func fault(in *networking.HTTPFaultInjection) *faultv3.HTTPFault {
	out := &faultv3.HTTPFault{}
	if d := in.Delay; d.GetFixedDelay() != nil {
		share := float64(d.Percent) //nolint:staticcheck // the deprecated field is still read where it is the only one
		if d.Percentage != nil {
			share = d.Percentage.Value
		}
		out.Delay = &commonv3.FaultDelay{
			Percentage:         envoy.Percent(share),
			FaultDelaySecifier: &commonv3.FaultDelay_FixedDelay{FixedDelay: d.GetFixedDelay()},
		}
	}
	abort := &faultv3.FaultAbort{Percentage: envoy.Percent(in.GetAbort().GetPercentage().GetValue())}
	switch e := in.GetAbort().GetErrorType().(type) {
	case *networking.HTTPFaultInjection_Abort_HttpStatus:
		abort.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: uint32(e.HttpStatus)}
		out.Abort = abort
	case *networking.HTTPFaultInjection_Abort_GrpcStatus:
		abort.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: grpcStatus(e.GrpcStatus)}
		out.Abort = abort
	}
	return out
}

// grpcStatus is the number of a gRPC status that is written as a name or as a number.
func grpcStatus(text string) uint32 {
	var c codes.Code
	if c.UnmarshalJSON([]byte(strconv.Quote(text))) == nil {
		return uint32(c)
	}
	return uint32(codes.Unavailable) // validation accepts no other text
}

func cors(in *networking.CorsPolicy) *corsv3.CorsPolicy {
	out := &corsv3.CorsPolicy{
		FilterEnabled:    envoy.Share(100),
		AllowMethods:     strings.Join(in.AllowMethods, ","),
		AllowHeaders:     strings.Join(in.AllowHeaders, ","),
		ExposeHeaders:    strings.Join(in.ExposeHeaders, ","),
		AllowCredentials: in.AllowCredentials,
	}
	if in.MaxAge != nil {
		out.MaxAge = strconv.FormatInt(in.MaxAge.Seconds, 10)
	}
	for _, origin := range in.AllowOrigins {
		if m := stringMatch(origin); m != nil {
			out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, m)
		}
	}
	if len(in.AllowOrigins) == 0 {
		for _, origin := range in.AllowOrigin { //nolint:staticcheck // the deprecated form is still read
			out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Exact{Exact: origin},
			})
		}
	}
	if in.UnmatchedPreflights == networking.CorsPolicy_IGNORE {
		out.ForwardNotMatchingPreflights = envoy.Bool(false)
	}
	return out
}
