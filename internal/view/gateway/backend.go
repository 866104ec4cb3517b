package gateway

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// maxAliases bounds how many Services of type ExternalName may lie between a backend and its service.
const maxAliases = 10

// resolve finds the service and the port of the backend of a rule.
func (q *Queries) resolve(r *query.Reader, rule *Rule) {
	b := rule.Backend
	fail := func(field, format string, args ...any) {
		rule.TroubleField, rule.Trouble = b.Field+field, fmt.Sprintf(format, args...)
	}
	if b.Host == "" {
		fail(".resource", "only services can be backends: the rule is ignored; name a service")
		return
	}
	rule.Target, rule.Port = q.target(r, b.Host), b.Port
	view := service.HostView{Host: rule.Target, Viewer: q.scope.Viewer(r, rule.Target, rule.Object.Namespace)}
	s, ok := q.services.Service.Get(r, view)
	switch {
	case !ok && rule.Target != b.Host:
		fail(".service.name", "%q is another name for %q, which no object declares: requests to it fail; declare it with a ServiceEntry", b.Host, rule.Target)
	case !ok:
		fail(".service.name", "there is no service %q: traffic to it fails", b.Host)
	case b.PortName == "":
		if _, ok := s.Port(b.Port); !ok {
			fail(".service.port.number", "the service %q has no port %d: traffic to it fails; its ports are %s", rule.Target, b.Port, service.ListPorts(s.Ports))
		}
	default:
		rule.Port = portNamed(s.Ports, b.PortName)
		if rule.Port == 0 {
			fail(".service.port.name", "the service %q has no port with the name %q: the rule is ignored; its ports are %s", rule.Target, b.PortName, service.ListPorts(s.Ports))
		}
	}
}

func portNamed(ports []mesh.Port, name string) uint32 {
	for _, port := range ports {
		if port.Name == name {
			return port.Number
		}
	}
	return 0
}

// target returns the host for which a host is another name, because there is a Service of type ExternalName; or else the host itself.
func (q *Queries) target(r *query.Reader, host string) string {
	for range maxAliases {
		name, namespace, ok := mesh.ClusterHost(host, q.tables.Domain())
		if !ok {
			return host
		}
		s, ok := q.tables.Kube.Services.Get(r, api.Key{Kind: kube.KindService, Namespace: namespace, Name: name, Cluster: q.tables.ClusterID()})
		if !ok || s.Type != kube.ExternalName || s.ExternalName == "" {
			return host
		}
		host = s.ExternalName
	}
	return host
}
