// Package connection holds the settings of a proxy for its connections: connectionSettings of a ProxyConfig, with the values of their profile.
//
// It owns their comparable form, which can be part of keys, and reads it from the API and from the metadata of nodes. The package starts no goroutines.
package connection

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/intern"
)

// Limit is a setting that may be absent, which differs from 0: a timeout of 0 means none.
type Limit[T comparable] struct {
	Set   bool
	Value T
}

// Settings are the connectionSettings of a proxy: how it handles connections, from the listeners that accept them to the clusters that they lead to.
// An absent setting leaves the default of the proxy. Settings of the whole Envoy, such as the number of all its connections, are in its bootstrap.
type Settings struct {
	// ListenerBuffer and ClusterBuffer are the bytes that are buffered per connection.
	ListenerBuffer, ClusterBuffer Limit[uint32]
	// Idle is how long a connection may be without requests, MaxAge how long it lives, and Drain how long requests may begin after the notice of its end.
	Idle, MaxAge, Drain Limit[time.Duration]
	// Request and Headers limit how long a client may take to send a request and its headers, StreamIdle how long neither side may send anything, and
	// MaxStream how long a request and its response may take.
	Request, Headers, StreamIdle, MaxStream Limit[time.Duration]
	// Streams are the concurrent requests of a connection of HTTP/2, and the windows are the bytes that a sender may send before they are acknowledged.
	Streams, StreamWindow, ConnectionWindow Limit[uint32]
	// Underscores says what becomes of headers with underscores in their names. Slashes, and MergeSlashes, say how slashes in paths are treated.
	Underscores  meshconfig.ProxyConfig_ConnectionSettings_HeadersWithUnderscoresAction
	Slashes      meshconfig.ProxyConfig_ConnectionSettings_PathWithEscapedSlashesAction
	MergeSlashes Limit[bool]
}

// edge are the values of the profile EDGE, as the API documents them.
func edge() Settings {
	const buffer, window, connectionWindow = 32 << 10, 64 << 10, 1 << 20
	return Settings{
		ListenerBuffer: Limit[uint32]{true, buffer}, ClusterBuffer: Limit[uint32]{true, buffer},
		Idle: Limit[time.Duration]{true, time.Hour}, Request: Limit[time.Duration]{true, 5 * time.Minute}, StreamIdle: Limit[time.Duration]{true, 5 * time.Minute},
		Streams: Limit[uint32]{true, 100}, StreamWindow: Limit[uint32]{true, window}, ConnectionWindow: Limit[uint32]{true, connectionWindow},
		Underscores:  meshconfig.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_REJECT_REQUEST,
		Slashes:      meshconfig.ProxyConfig_ConnectionSettings_UNESCAPE_AND_REDIRECT,
		MergeSlashes: Limit[bool]{true, true},
	}
}

// Of returns the settings of a valid message, with the values of its profile; the zero value for nil.
func Of(m *meshconfig.ProxyConfig_ConnectionSettings) Settings {
	if m == nil {
		return Settings{} // the usual case, for each cluster and listener
	}
	var c Settings
	if m.GetProfile() == meshconfig.ProxyConfig_ConnectionSettings_EDGE {
		c = edge()
	}
	for _, f := range []struct {
		into *Limit[uint32]
		from *wrapperspb.Int32Value
	}{
		{&c.ListenerBuffer, m.GetListenerPerConnectionBufferLimitBytes()}, {&c.ClusterBuffer, m.GetClusterPerConnectionBufferLimitBytes()},
		{&c.Streams, m.GetHttpMaxConcurrentStreams()}, {&c.StreamWindow, m.GetHttp2InitialStreamWindowSize()},
		{&c.ConnectionWindow, m.GetHttp2InitialConnectionWindowSize()},
	} {
		if f.from != nil {
			*f.into = Limit[uint32]{true, uint32(f.from.Value)}
		}
	}
	for _, f := range []struct {
		into *Limit[time.Duration]
		from *durationpb.Duration
	}{
		{&c.Idle, m.GetHttpIdleTimeout()}, {&c.MaxAge, m.GetHttpMaxConnectionDuration()}, {&c.Drain, m.GetHttpDrainTimeout()},
		{&c.Request, m.GetHttpRequestTimeout()}, {&c.Headers, m.GetHttpRequestHeadersTimeout()},
		{&c.StreamIdle, m.GetHttpStreamIdleTimeout()}, {&c.MaxStream, m.GetHttpMaxStreamDuration()},
	} {
		if f.from != nil {
			*f.into = Limit[time.Duration]{true, f.from.AsDuration()}
		}
	}
	if a := m.GetHttpHeadersWithUnderscoresAction(); a != 0 {
		c.Underscores = a
	}
	if a := m.GetHttpPathWithEscapedSlashesAction(); a != 0 {
		c.Slashes = a
	}
	if merge := m.GetHttpMergeSlashes(); merge != nil {
		c.MergeSlashes = Limit[bool]{true, merge.Value}
	}
	return c
}

// Reported returns the connectionSettings of the settings that an agent reports for its proxy; an empty list if there are none. Fields that newer versions may
// have are ignored. Values that Envoy would refuse are refused here, because the agent of another version may not have checked them.
func Reported(m *structpb.Struct) (intern.List[Settings], error) {
	s := m.GetFields()["PROXY_CONFIG"].GetStructValue().GetFields()["connectionSettings"].GetStructValue()
	if s == nil {
		return intern.List[Settings]{}, nil
	}
	const at = "PROXY_CONFIG: connectionSettings"
	text, err := protojson.Marshal(s)
	if err != nil {
		return intern.List[Settings]{}, fmt.Errorf("%s: %w", at, err)
	}
	var message meshconfig.ProxyConfig_ConnectionSettings
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, &message); err != nil {
		return intern.List[Settings]{}, fmt.Errorf("%s: %w", at, err)
	}
	c := Of(&message)
	if err := check(&message, c); err != nil {
		return intern.List[Settings]{}, fmt.Errorf("%s: %w", at, err)
	}
	return intern.Of(c), nil
}

// Number is a setting that is a number; Value is nil if it is absent.
type Number struct {
	Field string
	Value *wrapperspb.Int32Value
	// Least is the least value that Envoy accepts. Of a window, it is the default of HTTP/2.
	Least int32
}

// Numbers returns the settings of listeners and clusters that are numbers.
func Numbers(m *meshconfig.ProxyConfig_ConnectionSettings) []Number {
	const window = 1<<16 - 1
	return []Number{
		{"listenerPerConnectionBufferLimitBytes", m.GetListenerPerConnectionBufferLimitBytes(), 0},
		{"clusterPerConnectionBufferLimitBytes", m.GetClusterPerConnectionBufferLimitBytes(), 0},
		{"httpMaxConcurrentStreams", m.GetHttpMaxConcurrentStreams(), 1},
		{"http2InitialStreamWindowSize", m.GetHttp2InitialStreamWindowSize(), window},
		{"http2InitialConnectionWindowSize", m.GetHttp2InitialConnectionWindowSize(), window},
	}
}

// check returns an error for values that Envoy refuses. c are the settings of m.
func check(m *meshconfig.ProxyConfig_ConnectionSettings, c Settings) error {
	for _, n := range Numbers(m) {
		if n.Value != nil && n.Value.Value < n.Least {
			return fmt.Errorf("%s: %d is not between %d and %d", n.Field, n.Value.Value, n.Least, math.MaxInt32)
		}
	}
	for _, d := range []Limit[time.Duration]{c.Idle, c.MaxAge, c.Drain, c.Request, c.Headers, c.StreamIdle, c.MaxStream} {
		if d.Value < 0 {
			return fmt.Errorf("a timeout of %v is below 0", d.Value)
		}
	}
	return nil
}
