package mesh

import (
	"cmp"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/intern"
)

// MTLSMode is whether a workload takes connections with mutual TLS of the mesh, and whether it takes other connections.
type MTLSMode uint8

// The modes.
const (
	// MTLSInherited leaves the decision to the policy of a wider scope.
	MTLSInherited MTLSMode = iota
	// MTLSPermissive takes mutual TLS and plain text.
	MTLSPermissive
	// MTLSStrict takes nothing but mutual TLS.
	MTLSStrict
	// MTLSDisabled does not terminate TLS.
	MTLSDisabled
)

// String returns the mode as users write it.
func (m MTLSMode) String() string {
	switch m {
	case MTLSPermissive:
		return "PERMISSIVE"
	case MTLSStrict:
		return "STRICT"
	case MTLSDisabled:
		return "DISABLE"
	}
	return "UNSET"
}

// PortMTLS is the mode of one port of a workload.
type PortMTLS struct {
	Port uint32
	Mode MTLSMode
}

// MTLS are the modes of a workload. It is a part of keys.
type MTLS struct {
	Mode MTLSMode
	// Ports are the ports with another mode, by number. None of them is inherited.
	Ports intern.List[PortMTLS]
}

// MTLSOf returns the modes of a workload from its general mode and the modes of its ports.
func MTLSOf(mode MTLSMode, ports map[uint32]MTLSMode) MTLS {
	var list []PortMTLS
	for port, m := range ports {
		if m != MTLSInherited && m != mode {
			list = append(list, PortMTLS{port, m})
		}
	}
	slices.SortFunc(list, func(a, b PortMTLS) int { return cmp.Compare(a.Port, b.Port) })
	return MTLS{mode, intern.Of(list...)}
}

// At returns the mode of a port.
func (m MTLS) At(port uint32) MTLSMode {
	for p := range m.Ports.All() {
		if p.Port == port {
			return p.Mode
		}
	}
	return m.Mode
}

// Has reports whether some port may have a mode.
func (m MTLS) Has(mode MTLSMode) bool {
	for p := range m.Ports.All() {
		if p.Mode == mode {
			return true
		}
	}
	return m.Mode == mode
}

// Within returns the modes after the mode of a wider scope has replaced an inherited general mode.
func (m MTLS) Within(wider MTLSMode) MTLS {
	if m.Mode != MTLSInherited {
		return m
	}
	return MTLS{wider, intern.Keep(m.Ports, func(p PortMTLS) bool { return p.Mode != wider })}
}

// WithoutCertificate returns the modes of a workload whose proxy cannot have a certificate: instead of taking either mutual TLS or
// plain text it takes plain text. A port that requires mutual TLS still requires it, so its connections are refused.
func (m MTLS) WithoutCertificate() MTLS {
	plain := func(mode MTLSMode) MTLSMode {
		if mode == MTLSPermissive {
			return MTLSDisabled
		}
		return mode
	}
	ports := map[uint32]MTLSMode{}
	for p := range m.Ports.All() {
		ports[p.Port] = plain(p.Mode)
	}
	return MTLSOf(plain(m.Mode), ports)
}
