package settings

import (
	"cmp"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// CapturePorts returns the ports of sidecars to which traffic is redirected: proxyListenPort and proxyInboundListenPort.
func (t *Settings) CapturePorts(r store.Reader) mesh.CapturePorts {
	v, ok := t.rows.Get(r, capturePorts)
	if !ok {
		return mesh.DefaultCapturePorts()
	}
	return mesh.CapturePorts{Outbound: uint32(v.Number >> inboundBits), Inbound: uint32(v.Number & (1<<inboundBits - 1))}
}

// inboundBits are the bits of the inbound port in the number of the row of ports. The outbound port is above them.
const inboundBits = 16

// InboundStatName and OutboundStatName are the patterns for the names of clusters in statistics; empty to use the names of the clusters.
func (t *Settings) InboundStatName(r store.Reader) string { return t.text(r, inboundStatName, "") }

// OutboundStatName is described at InboundStatName.
func (t *Settings) OutboundStatName(r store.Reader) string { return t.text(r, outboundStatName, "") }

// InboundRetries returns the retry policy for requests to the application; nil if the mesh configuration has none. Only attempts, conditions
// and back-off of it count.
func (t *Settings) InboundRetries(r store.Reader) *networking.HTTPRetry {
	v, _ := t.rows.Get(r, inboundRetries)
	policy, _ := v.Message.(*networking.HTTPRetry)
	return policy
}

func (t *Settings) writeSidecars(tx *store.Txn, m *meshconfig.MeshConfig) {
	d := mesh.DefaultCapturePorts()
	out, in := cmp.Or(m.GetProxyListenPort(), int32(d.Outbound)), cmp.Or(m.GetProxyInboundListenPort(), int32(d.Inbound))
	t.rows.Set(tx, capturePorts, Value{Number: int64(out)<<inboundBits | int64(in)})
	t.rows.Set(tx, inboundStatName, Value{Text: m.GetInboundClusterStatName()})
	t.rows.Set(tx, outboundStatName, Value{Text: m.GetOutboundClusterStatName()})
	v := Value{}
	if p := m.GetDefaultInboundHttpRetryPolicy(); p != nil {
		v.Message = p
	}
	t.rows.Set(tx, inboundRetries, v)
}
