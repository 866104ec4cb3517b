package proxy

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/types/known/structpb"
)

// Topology describes the proxies in front of one gateway.
type Topology struct {
	// Own is false if the gateway has no settings of its own, so that the settings of the mesh count.
	Own bool
	// ProxyProtocol is true if connections begin with a header of the PROXY protocol.
	ProxyProtocol bool
	// TrustedProxies is how many proxies are trusted to append the address of their client to x-forwarded-for.
	TrustedProxies uint32
	// ClientCert says what becomes of the header x-forwarded-client-cert, as the API names it; empty for the default.
	ClientCert string
}

// topology reads gatewayTopology of the settings that an agent reports for its proxy. Other fields, which newer versions may have, are ignored.
func topology(m *structpb.Struct) (Topology, error) {
	s := m.GetFields()["PROXY_CONFIG"].GetStructValue().GetFields()["gatewayTopology"].GetStructValue()
	if s == nil {
		return Topology{}, nil
	}
	const at = "PROXY_CONFIG: gatewayTopology."
	t := Topology{Own: true, ProxyProtocol: s.GetFields()["proxyProtocol"].GetStructValue() != nil}
	switch v := s.GetFields()["numTrustedProxies"].GetKind().(type) {
	case nil, *structpb.Value_NullValue:
	case *structpb.Value_NumberValue:
		if v.NumberValue < 0 || v.NumberValue > math.MaxUint32 || v.NumberValue != math.Trunc(v.NumberValue) {
			return Topology{}, fmt.Errorf("%snumTrustedProxies: %v is no number of proxies", at, v.NumberValue)
		}
		t.TrustedProxies = uint32(v.NumberValue)
	default:
		return Topology{}, fmt.Errorf("%snumTrustedProxies is not a number", at)
	}
	var err error
	if t.ClientCert, err = text(s, "forwardClientCertDetails"); err != nil {
		return Topology{}, fmt.Errorf("%s%w", at, err)
	}
	return t, nil
}
