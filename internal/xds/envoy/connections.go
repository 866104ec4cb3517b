package envoy

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/api/connection"
)

// limitConnections puts the settings for connections into a connection manager. http2 is false for one that takes HTTP/3 alone.
func limitConnections(m *hcmv3.HttpConnectionManager, c connection.Settings, http2 bool) {
	if (c == connection.Settings{}) {
		return
	}
	common := m.CommonHttpProtocolOptions
	if common == nil {
		common = &corev3.HttpProtocolOptions{}
	}
	setDuration(&common.IdleTimeout, c.Idle)
	setDuration(&common.MaxConnectionDuration, c.MaxAge)
	setDuration(&common.MaxStreamDuration, c.MaxStream)
	if c.Underscores != 0 { // the API and Envoy list the actions in the same order, and the API has "unspecified" before them
		common.HeadersWithUnderscoresAction = corev3.HttpProtocolOptions_HeadersWithUnderscoresAction(c.Underscores - 1)
	}
	if c.Idle.Set || c.MaxAge.Set || c.MaxStream.Set || c.Underscores != 0 {
		m.CommonHttpProtocolOptions = common
	}
	setDuration(&m.DrainTimeout, c.Drain)
	setDuration(&m.RequestTimeout, c.Request)
	setDuration(&m.RequestHeadersTimeout, c.Headers)
	setDuration(&m.StreamIdleTimeout, c.StreamIdle)
	if c.MergeSlashes.Set {
		m.MergeSlashes = c.MergeSlashes.Value
	}
	if c.Slashes != 0 { // Envoy lists its actions in the order of the API, after IMPLEMENTATION_SPECIFIC_DEFAULT
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction(c.Slashes)
	}
	if http2 && (c.Streams.Set || c.StreamWindow.Set || c.ConnectionWindow.Set) {
		m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams: limitValue(c.Streams), InitialStreamWindowSize: limitValue(c.StreamWindow), InitialConnectionWindowSize: limitValue(c.ConnectionWindow),
		}
	}
}

func setDuration(into **durationpb.Duration, d connection.Limit[time.Duration]) {
	if d.Set {
		*into = Duration(d.Value)
	}
}

func limitValue(n connection.Limit[uint32]) *wrapperspb.UInt32Value {
	if !n.Set {
		return nil
	}
	return wrapperspb.UInt32(n.Value)
}
