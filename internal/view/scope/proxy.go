package scope

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// HTTPProxy is a listener that takes requests for whichever of its hosts they name, with the port.
type HTTPProxy struct {
	// Number tells it from the others of its set: 0 is the mesh's, whose hosts are all of the set; others are those of the
	// Sidecar, by their places among its listeners, from 1.
	Number int
	Port   uint32
	// IP is the address it is at; empty: any, or the loopback address where nothing redirects. Bound says that it has a
	// socket there.
	IP    string
	Bound bool
}

// HTTPProxies are those of a Sidecar, the zero key for none. A Sidecar's own listener goes before the mesh's on its port.
func (q *Queries) HTTPProxies(r *query.Reader, sidecar api.Key) []HTTPProxy {
	var list []HTTPProxy
	port := q.tables.HTTPProxyPort(r)
	if sidecar != (api.Key{}) {
		listeners, _ := q.listeners.Get(r, sidecar)
		for i, e := range listeners {
			if e.Port == port && e.IP == mesh.Loopback {
				port = 0
			}
			if proxies(e) {
				list = append(list, HTTPProxy{Number: i + 1, Port: e.Port, IP: e.IP, Bound: e.Bound})
			}
		}
	}
	if port != 0 {
		list = append(list, HTTPProxy{Port: port, IP: mesh.Loopback, Bound: true})
	}
	return list
}

// Named are the hosts of a set with those that can be called by their bare names.
func (q *Queries) Named(r *query.Reader, s Set) Hosts {
	m, _ := q.namedHosts.Get(r, s)
	return m
}

// LabelledHosts are the hosts of a set that callers with labels may see differently.
func (q *Queries) LabelledHosts(r *query.Reader, k Labelled) Hosts {
	m, _ := q.labelledHosts.Get(r, k)
	return m
}

// Proxied is what a host takes up at an HTTP proxy of a set; ok is false if that takes no requests for it.
func (q *Queries) Proxied(r *query.Reader, h HostIn, number int) (f service.Footprint, ok bool) {
	admits := func(string) bool { return true }
	if number > 0 {
		listeners, _ := q.listeners.Get(r, h.Set.Sidecar)
		if number > len(listeners) {
			return service.Footprint{}, false
		}
		admits = func(namespace string) bool { return listeners[number-1].Admits(namespace, h.Host, h.Set.Namespace) }
	}
	f, ok = q.services.FootprintAt(r, q.View(r, h), func(namespace string, _ uint32) []service.Place {
		if !admits(namespace) {
			return nil
		}
		return []service.Place{{}}
	})
	return f, ok && len(f.HTTP) > 0
}

// proxies reports whether a listener is for requests that name where they go, whatever the port.
func proxies(e state.Egress) bool { return e.Protocol == mesh.HTTPProxy }
