package state

import (
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/store"
)

// RouteSettings are what the mesh configuration says about outbound routes.
type RouteSettings struct {
	// Retries is the policy where a rule says nothing; nil if the mesh says nothing either.
	Retries *networking.HTTPRetry
	// HideAttempts leaves out the header that counts attempts.
	HideAttempts bool
	// ForwardHost keeps a host that is rewritten in a header.
	ForwardHost bool
}

// What the number of the row of route settings is made of.
const (
	hideAttempts = 1 << iota
	forwardHost
)

// RouteSettings is what the mesh configuration says about outbound routes.
func (t *Tables) RouteSettings(r store.Reader) RouteSettings {
	v, _ := t.Settings.Get(r, routeSettings)
	s := RouteSettings{HideAttempts: v.Number&hideAttempts != 0, ForwardHost: v.Number&forwardHost != 0}
	if v.Text != "" {
		policy := new(networking.HTTPRetry)
		if proto.Unmarshal([]byte(v.Text[1:]), policy) == nil {
			s.Retries = policy
		}
	}
	return s
}

// writeRouteSettings replaces what the mesh says about routes. The text of the row is the retry policy, encoded, behind
// a mark that tells an empty policy (no retries) from none.
func (t *Tables) writeRouteSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
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
	t.Settings.Set(tx, routeSettings, v)
}
