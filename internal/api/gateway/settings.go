package gateway

import "github.com/pilotmesh/pilot/internal/mesh"

// IngressMode is which Ingresses count.
type IngressMode uint8

// The modes. Strict is the default.
const (
	// IngressStrict: Ingresses that name the class of the mesh.
	IngressStrict IngressMode = iota
	// IngressDefault: also Ingresses that name no class.
	IngressDefault
	// IngressOff: none.
	IngressOff
)

// String is the name of the mode in MeshConfig.
func (m IngressMode) String() string { return [...]string{"STRICT", "DEFAULT", "OFF"}[m] }

// IngressSettings are the mesh settings about Ingresses.
type IngressSettings struct {
	Mode IngressMode
	// Class is the value of the annotation kubernetes.io/ingress.class by which Ingresses count.
	Class string
	// Gateway is the value of the label "istio" of the gateways that serve Ingresses.
	Gateway string
	// Service is the name of the Service in front of these gateways, in the root namespace; empty if there is none.
	Service string
}

// Selector are the labels of the gateways that serve Ingresses.
func (s IngressSettings) Selector() mesh.Labels {
	return mesh.LabelsOf(map[string]string{"istio": s.Gateway})
}

// DefaultIngressSettings are the settings of a mesh without its own.
func DefaultIngressSettings() IngressSettings {
	return IngressSettings{IngressStrict, "istio", "ingressgateway", IngressService}
}

// IngressService is the default name of the Service in front of the gateways. The pods behind it have the default label, and those behind
// another one have its name as label.
const IngressService = "istio-ingressgateway"
