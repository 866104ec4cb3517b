package envoy

import (
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	messagev3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	codecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// httpOptionsKey is the key of a cluster's HTTP options.
const httpOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// Upstream is the HTTP version that a cluster speaks.
type Upstream uint8

// The values of Upstream.
const (
	// UpstreamHTTP1 is the default, which needs no option.
	UpstreamHTTP1 Upstream = iota
	// UpstreamHTTP2 is HTTP/2 with prior knowledge.
	UpstreamHTTP2
	// UpstreamAsDownstream is the version that the client speaks.
	UpstreamAsDownstream
)

// HTTP says how a cluster speaks HTTP.
type HTTP struct {
	Upstream
	// CommonOptions are limits of connections; nil means none.
	CommonOptions *corev3.HttpProtocolOptions
	// MaxConcurrentStreams bounds the concurrent requests of an HTTP/2 connection. 0 means no bound.
	MaxConcurrentStreams uint32
	// Keepalive sets pings on HTTP/2 connections; nil means none.
	Keepalive *corev3.KeepaliveSettings
	// SNIFromHost uses the host of a request as SNI. SANFromHost also requires that the server certificate has that name.
	SNIFromHost, SANFromHost bool
	// ErrorStatuses are the response statuses that outlier detection counts as errors. If there are none, it counts 500
	// and above.
	ErrorStatuses []uint32
	// NamesWorkload adds a header that names the workload of the proxy, and replaces one that the application has sent.
	NamesWorkload bool
}

func (h HTTP) isDefault() bool {
	return h.Upstream == UpstreamHTTP1 && h.CommonOptions == nil && !h.SNIFromHost && !h.SANFromHost && len(h.ErrorStatuses) == 0 && !h.NamesWorkload
}

// SetHTTP sets how a cluster speaks HTTP.
func SetHTTP(c *clusterv3.Cluster, h HTTP) {
	if h.isDefault() {
		return
	}
	o := &httpv3.HttpProtocolOptions{CommonHttpProtocolOptions: h.CommonOptions}
	two := &corev3.Http2ProtocolOptions{ConnectionKeepalive: h.Keepalive}
	if h.MaxConcurrentStreams > 0 {
		two.MaxConcurrentStreams = Uint(h.MaxConcurrentStreams)
	}
	switch h.Upstream {
	case UpstreamHTTP1:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
					HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
				},
			},
		}
	case UpstreamHTTP2:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: two},
			},
		}
	case UpstreamAsDownstream:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions:  &corev3.Http1ProtocolOptions{},
				Http2ProtocolOptions: two,
			},
		}
	}
	if h.SNIFromHost || h.SANFromHost {
		o.UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{AutoSni: h.SNIFromHost, AutoSanValidation: h.SANFromHost}
	}
	if len(h.ErrorStatuses) > 0 {
		o.OutlierDetection = &httpv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: statusMatcher(h.ErrorStatuses)}
	}
	if h.NamesWorkload {
		o.HttpFilters = nameWorkload()
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsKey: Pack(o)}
}

// statusMatcher matches responses with one of the statuses.
func statusMatcher(list []uint32) *messagev3.MatchPredicate {
	texts := make([]string, 0, len(list))
	for _, status := range list {
		texts = append(texts, strconv.FormatUint(uint64(status), 10))
	}
	return &messagev3.MatchPredicate{Rule: &messagev3.MatchPredicate_HttpResponseHeadersMatch{
		HttpResponseHeadersMatch: &messagev3.HttpHeadersMatch{Headers: []*routev3.HeaderMatcher{{
			Name: ":status",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: strings.Join(texts, "|")}},
			}},
		}}},
	}}
}

// nameWorkload are the filters of an upstream that add PeerHeader, whose value is in the environment of Envoy. They see a request when it has a server:
// what the application has sent is replaced, and other clusters do not get the header.
func nameWorkload() []*hcmv3.HttpFilter {
	add := &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: PeerHeader, Value: "%ENVIRONMENT(" + EnvPeerHeader + ")%"},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
	return []*hcmv3.HttpFilter{changeHeaders(add, withoutHeader(PeerIDHeader)), HTTPFilter("envoy.filters.http.upstream_codec", &codecv3.UpstreamCodec{})}
}

// NamesWorkload reports whether requests through a cluster have PeerHeader. m is the cluster, unless err is set.
func NamesWorkload(m proto.Message, err error) bool {
	c, ok := m.(*clusterv3.Cluster)
	packed := c.GetTypedExtensionProtocolOptions()[httpOptionsKey]
	o := new(httpv3.HttpProtocolOptions)
	if err != nil || !ok || packed == nil || packed.UnmarshalTo(o) != nil || len(o.GetHttpFilters()) == 0 {
		return false
	}
	return proto.Equal(o.GetHttpFilters()[0], nameWorkload()[0])
}

// RemovePeerHeaders is a filter of a connection manager that removes what proxies say of their workload.
func RemovePeerHeaders() *hcmv3.HttpFilter {
	return changeHeaders(withoutHeader(PeerHeader), withoutHeader(PeerIDHeader))
}

func withoutHeader(name string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: name}}
}

func changeHeaders(list ...*mutationv3.HeaderMutation) *hcmv3.HttpFilter {
	return HTTPFilter("envoy.filters.http.header_mutation", &headerv3.HeaderMutation{Mutations: &headerv3.Mutations{RequestMutations: list}})
}
