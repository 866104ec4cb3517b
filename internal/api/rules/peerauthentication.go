package rules

import (
	"maps"
	"slices"
	"strconv"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// PeerAuthentication checks a PeerAuthentication.
func PeerAuthentication(s *security.PeerAuthentication, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) { c.peerAuthentication(at, s) })
}

func (c *checker) peerAuthentication(p *document.Path, s *security.PeerAuthentication) {
	ports := p.Field("portLevelMtls")
	if len(s.PortLevelMtls) > 0 && len(s.Selector.GetMatchLabels()) == 0 {
		c.Fail(ports, "needs a selector, because workloads serve different things on the same port")
	}
	for _, port := range slices.Sorted(maps.Keys(s.PortLevelMtls)) {
		c.Port(ports.Key(strconv.FormatUint(uint64(port), 10)), port)
	}
}
