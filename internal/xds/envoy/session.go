package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// SessionFilter sends requests to the endpoint of their session. It does nothing unless a route configures it.
const SessionFilter = "envoy.filters.http.stateful_session"

// SessionRoute configures SessionFilter for the routes to a service. The cookie has no lifetime: it ends with the session of the browser.
func SessionRoute(s mesh.Session) *anypb.Any {
	kind, state := "header", proto.Message(&headerv3.HeaderBasedSessionState{Name: s.Header})
	if s.Cookie != "" {
		kind, state = "cookie", &cookiev3.CookieBasedSessionState{Cookie: &httpv3.Cookie{Name: s.Cookie, Path: s.Path}}
	}
	return Pack(&sessionv3.StatefulSessionPerRoute{Override: &sessionv3.StatefulSessionPerRoute_StatefulSession{
		StatefulSession: &sessionv3.StatefulSession{SessionState: &corev3.TypedExtensionConfig{
			Name: "envoy.http.stateful_session." + kind, TypedConfig: Pack(state),
		}},
	}})
}

// SessionStatuses are the states in which an endpoint takes the requests of its sessions.
func SessionStatuses() *corev3.HealthStatusSet {
	return &corev3.HealthStatusSet{Statuses: []corev3.HealthStatus{
		corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_DEGRADED,
	}}
}
