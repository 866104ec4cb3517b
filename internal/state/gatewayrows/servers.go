package gatewayrows

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Declared are the servers of Gateways, a row each: an edit of one server of a thousand changes one row.
type Declared struct {
	Servers store.Table[ServerKey, *Server]
	// Selected lists the servers of the Gateways with a selector, of all namespaces or of one.
	Selected store.Index[proxy.GatewaySelector, ServerKey]
	// Hosts lists the hosts of a Gateway, and HostNamespaces the namespaces whose routes count for one of them; an empty one means all.
	Hosts          store.Index[api.Key, HostIn]
	HostNamespaces store.Index[ServerHost, omap.Name]
}

// ServerKey names a server of a Gateway by its position.
type ServerKey struct {
	Gateway api.Key
	Index   int
}

// Compare orders by Gateway, then position.
func (k ServerKey) Compare(o ServerKey) int {
	if k.Gateway == o.Gateway {
		return cmp.Compare(k.Index, o.Index)
	}
	return k.Gateway.Compare(o.Gateway)
}

// AppendTo appends an unambiguous form.
func (k ServerKey) AppendTo(b []byte) []byte {
	return strconv.AppendInt(append(k.Gateway.AppendTo(b), ' '), int64(k.Index), 10)
}

// ServerHost is a host of a Gateway.
type ServerHost struct {
	Gateway api.Key
	Host    string
}

// HostIn is a host of a Gateway, and the namespace whose routes count for it; empty for all.
type HostIn struct{ Name, Namespace string }

// Compare orders by name.
func (h HostIn) Compare(o HostIn) int {
	return cmp.Or(strings.Compare(h.Name, o.Name), strings.Compare(h.Namespace, o.Namespace))
}

// AppendTo appends an unambiguous form.
func (h HostIn) AppendTo(b []byte) []byte {
	return append(append(append(b, h.Name...), 0), h.Namespace...)
}

// Server is a server of a Gateway, with the properties of the Gateway that decide who serves it.
type Server struct {
	gateway.Server
	Created  int64
	Selector mesh.Labels
}

func (s *Server) equal(o *Server) bool { return s.is(o.Server, o.Created, o.Selector) }

func (s *Server) is(server gateway.Server, created int64, selector mesh.Labels) bool {
	return s.Created == created && s.Selector == selector && s.Server.Equal(server)
}

// set writes the servers of a Gateway.
func (d *Declared) set(tx *store.Txn, gw api.Key, servers []gateway.Server, created int64, selector mesh.Labels) {
	for i, s := range servers {
		k := ServerKey{gw, i}
		if old, ok := d.Servers.Peek(k); ok && old.is(s, created, selector) {
			continue // most servers stay as they are, and need no new row
		}
		d.Servers.Set(tx, k, &Server{s, created, selector})
	}
	d.cut(tx, gw, len(servers))
}

// cut deletes the servers of a Gateway from a position on.
func (d *Declared) cut(tx *store.Txn, gw api.Key, from int) {
	for k := (ServerKey{gw, from}); ; k.Index++ {
		if _, ok := d.Servers.Peek(k); !ok {
			return
		}
		d.Servers.Delete(tx, k)
	}
}

// Delete deletes the servers of a Gateway.
func (d *Declared) Delete(tx *store.Txn, gw api.Key) { d.cut(tx, gw, 0) }

// Leaves returns the rows of the servers of a Gateway.
func (d *Declared) Leaves(gw api.Key) (list []store.ID) {
	for k := (ServerKey{gw, 0}); ; k.Index++ {
		if _, ok := d.Servers.Peek(k); !ok {
			return list
		}
		id, _ := d.Servers.Leaf(k)
		list = append(list, id)
	}
}

// defineDeclared defines the servers of Gateways, which selectors and hosts they have, and which credentials they name.
func (g *Tables) defineDeclared(db *store.DB) {
	d := &g.Declared
	d.Servers = store.NewTable[ServerKey, *Server](db, "declaredServers", (*Server).equal)
	d.Selected = store.NewIndex(d.Servers, "declaredServersSelected", func(k ServerKey, s *Server, add func(proxy.GatewaySelector, ServerKey)) {
		add(proxy.GatewaySelector{Labels: s.Selector}, k)
		add(proxy.GatewaySelector{Labels: s.Selector, Namespace: k.Gateway.Namespace}, k)
	})
	d.Hosts = store.NewIndex(d.Servers, "hostsOfServers", func(k ServerKey, s *Server, add func(api.Key, HostIn)) {
		for _, h := range s.Hosts {
			add(k.Gateway, HostIn{h.Name, h.Namespace})
		}
	})
	d.HostNamespaces = store.NewIndex(d.Servers, "namespacesOfServerHosts", func(k ServerKey, s *Server, add func(ServerHost, omap.Name)) {
		for _, h := range s.Hosts {
			add(ServerHost{k.Gateway, h.Name}, omap.Name(h.Namespace))
		}
	})
	g.SecureGateways = store.NewIndex(d.Servers, "secureGateways", func(k ServerKey, s *Server, add func(string, selected.AgeKey)) {
		if !s.Kind().IsTLS() {
			return
		}
		for _, h := range s.Hosts {
			add(h.Name, selected.AgeKey{Created: s.Created, Key: k.Gateway})
		}
	})
	g.CredentialUsers = store.NewIndex(d.Servers, "gatewayCredentialUsers", func(k ServerKey, s *Server, add func(string, api.Key)) {
		if s.TLS == nil {
			return
		}
		for _, name := range s.TLS.Credentials {
			add(name, k.Gateway)
		}
		if name := s.TLS.RootsCredential; name != "" {
			add(name, k.Gateway)
		}
	})
}
