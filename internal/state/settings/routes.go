package settings

import (
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// RouteSettings are the settings of the mesh configuration for outbound routes.
type RouteSettings struct {
	// Retries is the retry policy of routes without their own; nil if the mesh configuration has none.
	Retries *networking.HTTPRetry
	// HideAttempts disables the header that counts attempts.
	HideAttempts bool
	// ForwardHost keeps the original host in the header X-Forwarded-Host when a route rewrites it.
	ForwardHost bool
}

// The bits of the number in the row of route settings.
const (
	hideAttempts = 1 << iota
	forwardHost
)

// RouteSettings returns the settings of the mesh configuration for outbound routes.
func (t *Settings) RouteSettings(r store.Reader) RouteSettings {
	v, _ := t.rows.Get(r, routeSettings)
	s := RouteSettings{HideAttempts: v.Number&hideAttempts != 0, ForwardHost: v.Number&forwardHost != 0}
	if v.Text != "" {
		policy := new(networking.HTTPRetry)
		if proto.Unmarshal([]byte(v.Text[1:]), policy) == nil {
			s.Retries = policy
		}
	}
	return s
}

// writeRouteSettings replaces the settings for routes. The text of the row is "=" and the encoded retry policy, or empty if there is
// none: an empty policy disables retries.
func (t *Settings) writeRouteSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
	var v Value
	headers := m.GetDefaultConfig().GetProxyHeaders()
	if headers.GetAttemptCount().GetDisabled().GetValue() {
		v.Number |= hideAttempts
	}
	if headers.GetXForwardedHost().GetEnabled().GetValue() {
		v.Number |= forwardHost
	}
	if policy := m.GetDefaultHttpRetryPolicy(); policy != nil {
		if b, err := (proto.MarshalOptions{Deterministic: true}).Marshal(policy); err == nil {
			v.Text = "=" + string(b)
		}
	}
	t.rows.Set(tx, routeSettings, v)
}
