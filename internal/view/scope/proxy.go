package scope

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// HTTPProxy is a listener that takes requests for any host, like an HTTP proxy: the request names the host and the port.
type HTTPProxy struct {
	// Number identifies the listener within its set. 0 is the mesh's, which serves all hosts of the set. A listener of
	// the Sidecar has its position among the egress listeners, from 1.
	Number int
	// Port is the port of the listener.
	Port uint32
	// IP is the address of the listener, or a "unix://" path. If it is empty, the listener is at any address, or at the loopback address where
	// traffic is not redirected. Bound says that it has a socket of its own.
	IP    string
	Bound bool
}

// HTTPProxies are the HTTP proxies for proxies with a Sidecar (the zero key means none). A listener of the Sidecar
// replaces the mesh's listener on the same address and port.
func (q *Queries) HTTPProxies(r *query.Reader, sidecar api.Key) []HTTPProxy {
	var list []HTTPProxy
	port := q.tables.HTTPProxyPort(r)
	if sidecar != (api.Key{}) {
		listeners, _ := q.listeners.Get(r, sidecar)
		for i, e := range listeners {
			if e.Port == port && e.IP == mesh.Loopback {
				port = 0
			}
			if isHTTPProxy(e) {
				list = append(list, HTTPProxy{Number: i + 1, Port: e.Port, IP: e.IP, Bound: e.Bound})
			}
		}
	}
	if port != 0 {
		list = append(list, HTTPProxy{Port: port, IP: mesh.Loopback, Bound: true})
	}
	return list
}

// HostsWithShortNames are the hosts of a set, including the hosts that its proxies can call by short names.
func (q *Queries) HostsWithShortNames(r *query.Reader, s Set) Hosts {
	m, _ := q.hostsWithShortNames.Get(r, s)
	return m
}

// LabelledHosts are the hosts of a set that clients with labels may see differently.
func (q *Queries) LabelledHosts(r *query.Reader, k Audience) Hosts {
	m, _ := q.labelledHosts.Get(r, k)
	return m
}

// HTTPProxyFootprint is the footprint of a host at an HTTP proxy of a set. ok is false if the proxy takes no requests for
// it.
func (q *Queries) HTTPProxyFootprint(r *query.Reader, h HostInSet, number int) (f exposure.Footprint, ok bool) {
	admits := func(string) bool { return true }
	if number > 0 {
		listeners, _ := q.listeners.Get(r, h.Set.Sidecar)
		if number > len(listeners) {
			return exposure.Footprint{}, false
		}
		admits = func(namespace string) bool { return listeners[number-1].Admits(namespace, h.Host, h.Set.Namespace) }
	}
	f, ok = q.services.FootprintAt(r, q.View(r, h), func(namespace string, _ uint32) []exposure.Place {
		if !admits(namespace) {
			return nil
		}
		return []exposure.Place{{}}
	})
	return f, ok && len(f.HTTPPorts) > 0
}

// isHTTPProxy reports whether an egress listener is an HTTP proxy.
func isHTTPProxy(e state.Egress) bool { return e.Protocol == mesh.HTTPProxy }
