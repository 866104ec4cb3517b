package envoy

import (
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	messagev3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// httpOptionsKey is where a cluster carries its HTTP options.
const httpOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// Upstream is which HTTP a cluster speaks.
type Upstream uint8

// The kinds of upstream.
const (
	// UpstreamHTTP1 is the default; a cluster says nothing for it.
	UpstreamHTTP1 Upstream = iota
	// UpstreamHTTP2 is HTTP/2 without negotiation.
	UpstreamHTTP2
	// UpstreamAsDownstream speaks what the client spoke.
	UpstreamAsDownstream
)

// HTTP is how a cluster speaks HTTP.
type HTTP struct {
	Upstream
	// Common are limits of connections; nil for none.
	Common *corev3.HttpProtocolOptions
	// Streams bounds the requests at a time on an HTTP/2 connection; 0 does not.
	Streams uint32
	// Pings are sent on HTTP/2 connections, unless nil.
	Pings *corev3.KeepaliveSettings
	// SNIFromHost names the server that a request asks for in the TLS handshake, and NameFromHost demands that the
	// server proves to be that.
	SNIFromHost, NameFromHost bool
	// Errors are the statuses that count as errors of an endpoint, if there are any, instead of 500 and above.
	Errors []uint32
}

func (h HTTP) usual() bool {
	return h.Upstream == UpstreamHTTP1 && h.Common == nil && !h.SNIFromHost && !h.NameFromHost && len(h.Errors) == 0
}

// SetHTTP sets how a cluster speaks HTTP.
func SetHTTP(c *clusterv3.Cluster, h HTTP) {
	if h.usual() {
		return
	}
	o := &httpv3.HttpProtocolOptions{CommonHttpProtocolOptions: h.Common}
	two := &corev3.Http2ProtocolOptions{ConnectionKeepalive: h.Pings}
	if h.Streams > 0 {
		two.MaxConcurrentStreams = Uint(h.Streams)
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
	if h.SNIFromHost || h.NameFromHost {
		o.UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{AutoSni: h.SNIFromHost, AutoSanValidation: h.NameFromHost}
	}
	if len(h.Errors) > 0 {
		o.OutlierDetection = &httpv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: statuses(h.Errors)}
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsKey: Pack(o)}
}

// statuses matches responses with one of the statuses.
func statuses(list []uint32) *messagev3.MatchPredicate {
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
