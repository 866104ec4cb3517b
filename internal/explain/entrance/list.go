package entrance

import (
	"cmp"
	"fmt"
	"slices"

	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/view/gateway"
)

// List is what all gateways serve.
type List struct {
	Version  int            `json:"version"`
	Revision store.Revision `json:"revision"`
	// Gateways are the sets of gateways with the same configuration, and Hosts the claims on hosts, sorted by host and port: the server that
	// has the host first.
	Gateways []Set   `json:"gateways"`
	Hosts    []Claim `json:"hosts"`
	// More is the number of claims that are not listed.
	More int `json:"more,omitempty"`
}

// Set is a set of gateways with the same configuration.
type Set struct {
	Namespace string `json:"namespace"`
	// Selector are the labels of the gateways, if none is connected, and Proxies the connected ones.
	Selector string   `json:"selector,omitempty"`
	Proxies  []string `json:"proxies,omitempty"`
	Sockets  []Socket `json:"listeners"`
}

// Socket is where gateways listen.
type Socket struct {
	Bind    string `json:"bind,omitempty"`
	Listens uint32 `json:"listens"`
	// Port is the port that the objects name.
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol"`
	Servers  int    `json:"servers"`
}

// Claim is the claim of a server to a host.
type Claim struct {
	Host     string    `json:"host"`
	Port     uint32    `json:"port"`
	Protocol string    `json:"protocol"`
	Object   reply.Ref `json:"object"`
	Field    string    `json:"field,omitempty"`
	// Secret has the certificate; empty without one.
	Secret string `json:"secret,omitempty"`
	// Unused says why the claim is lost; empty if the server has the host.
	Unused string `json:"unused,omitempty"`
}

// List lists the gateways and the hosts that they have.
func (m Mesh) List() *List {
	i := &inquiry{Mesh: m, r: m.Graph.Glance()}
	list := &List{Version: Version, Revision: m.Graph.Revision(), Gateways: []Set{}}
	for _, f := range i.fronts() {
		set := Set{Namespace: f.Namespace, Selector: f.selector, Proxies: f.names, Sockets: []Socket{}}
		for at := range i.Queries.Gateways.Sockets(i.r, f.Served).All() {
			if servers, ok := i.Queries.Gateways.ServersAt(i.r, f.Served, at); ok {
				protocol := servers[0].Protocol.String()
				if at.QUIC {
					protocol = "HTTP/3"
				}
				set.Sockets = append(set.Sockets, Socket{at.Bind, at.Port, servers[0].Port, protocol, len(servers)})
			}
		}
		list.Gateways = append(list.Gateways, set)
	}
	list.Hosts = i.claims()
	list.More = max(0, len(list.Hosts)-maxListed)
	list.Hosts = list.Hosts[:len(list.Hosts)-list.More]
	return list
}

// claims returns the claims of all servers, each once.
func (i *inquiry) claims() []Claim {
	list := []Claim{}
	for _, f := range i.fronts() {
		for at := range i.Queries.Gateways.Sockets(i.r, f.Served).All() {
			servers, _ := i.Queries.Gateways.ServersAt(i.r, f.Served, at)
			for _, s := range servers {
				list = append(list, i.claimsOf(s)...)
			}
		}
		for _, lost := range i.Queries.Gateways.Lost(i.r, f.Served) {
			for _, c := range i.claimsOf(lost.Loser) {
				if lost.Host == "" || c.Host == lost.Host {
					c.Unused = lossText(lost)
					list = append(list, c)
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Unused, b.Unused),
			a.Object.Key().Compare(b.Object.Key()), cmp.Compare(a.Field, b.Field))
	})
	return slices.Compact(list)
}

// claimsOf returns the claims of a server: a claim for each of its hosts; for the server that all Ingresses share, the hosts of their rules.
func (i *inquiry) claimsOf(s *gateway.Placed) (list []Claim) {
	c := Claim{Port: s.Port, Protocol: s.Protocol.String(), Object: i.ref(s.Gateway), Field: s.Field, Secret: s.Credential()}
	if s.Gateway.Kind != ingress.Kind || s.Secure() {
		for _, host := range s.Hosts {
			c.Host = host.Name
			list = append(list, c)
		}
		return list
	}
	for name := range i.Tables.Gateways.Hosts.Group(i.r, struct{}{}).All() {
		h, ok := i.Queries.Gateways.Host(i.r, string(name))
		if !ok {
			continue
		}
		c.Host = h.Name
		for k := range i.Tables.Gateways.RoutesFor.Group(i.r, h.Name).All() { // the oldest comes first
			if slices.ContainsFunc(h.Rules, func(r gateway.Rule) bool { return r.Object == k.Key }) {
				c.Object = i.ref(k.Key)
				break
			}
		}
		list = append(list, c)
	}
	return list
}

func lossText(l gateway.Loss) string {
	if l.Host != "" {
		return fmt.Sprintf("%s goes first and has it", l.Winner.Gateway)
	}
	taken := "TCP"
	switch kind := l.Winner.Kind(); {
	case kind == gateways.TakesHTTP:
		taken = "HTTP"
	case kind.IsTLS():
		taken = "TLS"
	}
	return fmt.Sprintf("%s goes first and takes %s on the port", l.Winner.Gateway, taken)
}
