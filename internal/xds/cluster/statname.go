package cluster

import (
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// statName are the values of the variables in a pattern for the name of a cluster in statistics; see inboundClusterStatName in the mesh
// configuration.
type statName struct {
	host, name, subset string
	// port is a port of the service, and target the port of the application; 0 where it is not known.
	port, target uint32
	portName     string
}

// in returns the pattern with its variables replaced.
func (s statName) in(pattern, domain string) string {
	short := s.host
	if name, namespace, ok := mesh.ClusterHost(s.host, domain); ok {
		short = name + "." + namespace
	}
	pairs := []string{
		"%SERVICE%", short, "%SERVICE_NAME%", s.name, "%SERVICE_FQDN%", s.host, "%SUBSET_NAME%", s.subset, "%SERVICE_PORT%", strconv.FormatUint(uint64(s.port), 10),
		"%SERVICE_PORT_NAME%", s.portName,
	}
	if s.target != 0 {
		pairs = append(pairs, "%TARGET_PORT%", strconv.FormatUint(uint64(s.target), 10))
	}
	return strings.NewReplacer(pairs...).Replace(pattern)
}

// statEnd separates the name of a cluster from the name of a counter in statistics. Both contain dots.
const statEnd = ";"

// outboundStat returns the name in statistics of the cluster of a port, or of a subset of it.
func (t translation) outboundStat(name string, p mesh.Port, subset string) string {
	pattern := t.tables.OutboundStatName(t.r)
	if pattern == "" {
		return name + statEnd
	}
	return statName{host: t.s.Host, name: t.s.Name, subset: subset, port: p.Number, portName: p.Name}.in(pattern, t.tables.Domain()) + statEnd
}

// inboundStat returns the name in statistics of the cluster of a port of the application. The pattern counts if the port is one of a service.
func (q *Queries) inboundStat(r *query.Reader, name string, p proxy.InboundPort) string {
	pattern := q.tables.InboundStatName(r)
	if pattern == "" || p.Host == "" {
		return name + statEnd
	}
	s := statName{host: p.Host, name: p.Name, port: p.Port, target: p.Number}
	if of, ok := q.services.Service.Get(r, service.HostView{Host: p.Host, Viewer: q.scope.Viewer(r, p.Host, p.Namespace)}); ok {
		for _, port := range of.Ports {
			if port.Number == p.Port {
				s.portName = port.Name
			}
		}
	}
	return s.in(pattern, q.tables.Domain()) + statEnd
}
