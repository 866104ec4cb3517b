package gateway

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Shared are the hosts of a socket whose certificates Envoy asks for when a client names them. They share one filter chain and one route
// configuration, so that another host changes neither.
type Shared struct {
	// Table is the name of the route configuration.
	Table string
	// Names are the names in TLS that lead to the filter chain, sorted: the hosts, or patterns for all hosts with the same parent domain. A
	// pattern lets through names that no host has, and these get no certificate.
	Names []string
}

func (s *Shared) equal(o *Shared) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Table == o.Table && slices.Equal(s.Names, o.Names)
}

// sharedHosts are hosts with certificates on demand, each with its server.
type sharedHosts = omap.Map[omap.Name, sharedServer]

// sharedChange adds a host to them.
type sharedChange = omap.Change[omap.Name, sharedServer]

// sharedServer is a host and its server, which may have other hosts too.
type sharedServer struct {
	*Placed
	host gateway.Host
	hash omap.Hash
}

// alone returns the server with the host only, in a route configuration.
func (s sharedServer) alone(table string) *Placed { return s.with([]gateway.Host{s.host}, table) }

// with returns the server with some of its hosts, in a route configuration.
func (s *Placed) with(hosts []gateway.Host, table string) *Placed {
	one := *s
	one.Hosts, one.Table, one.hash, one.hostHashes = hosts, table, omap.Hash{}, nil
	return &one
}

// ContentHash implements omap.Value.
func (s sharedServer) ContentHash() omap.Hash { return s.hash }

// hashOf returns the hash of a host as a sharedServer. The other hosts of the server do not count.
func (s *Placed) hashOf(h gateway.Host) omap.Hash {
	b := make([]byte, 0, 256)
	for _, n := range []uint64{uint64(s.Created), uint64(s.Index), uint64(s.Port)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	k := s.Gateway
	return omap.Sum(gateway.AppendTexts(b, k.Kind, k.Namespace, k.Name, k.Cluster, s.PortName, s.Name, s.Credential(), s.Field, h.Namespace, h.Name))
}

// Size implements omap.Value.
func (sharedServer) Size() int { return 0 }

// sharedKey names the hosts of a route configuration with certificates on demand.
type sharedKey = tableKey

func (q *Queries) defineShared(g *query.Graph) {
	q.shared = query.DefineLayers(g, "gatewaySharedHosts", func(r *query.Reader, k sharedKey) []sharedHosts {
		p, _ := q.plan.Get(r, k.Served)
		return []sharedHosts{p.shared[k.table]}
	})
	q.onDemand = query.DefineLayers(g, "gatewayCertificatesOnDemand", func(r *query.Reader, k Served) []sharedHosts {
		p, _ := q.plan.Get(r, k)
		return []sharedHosts{p.certificates}
	})
}

// OnDemand returns the name of the Secret with the certificate of a host that gateways have on demand; false if it is no such host. name is what a
// client asks for in TLS, in any case of letters.
func (q *Queries) OnDemand(r *query.Reader, k Served, name string) (credential string, ok bool) {
	if !k.OnDemand {
		return "", false
	}
	s, ok := q.onDemand.Get(r, k, omap.Name(strings.ToLower(name)))
	if !ok {
		return "", false
	}
	return s.Credential(), true
}

// ServersAt returns all servers of a socket of gateways, with the servers of hosts with certificates on demand; false if they do not listen there.
func (q *Queries) ServersAt(r *query.Reader, k Served, at Socket) ([]*Placed, bool) {
	l, ok := q.Listener(r, k, at)
	if !ok {
		return nil, false
	}
	list := l.Servers
	if l.Shared != nil {
		list = slices.Clone(list)
		for _, s := range q.shared.Merged(r, sharedKey{k, l.Shared.Table}).All() {
			list = append(list, s.alone(l.Shared.Table))
		}
	}
	return list, true
}

// share takes the hosts that need nothing but a certificate out of their servers. What remains of a server, such as its patterns, keeps a filter chain of
// its own.
func (b *planner) share() {
	b.shared = map[string]sharedHosts{}
	credentials := b.credentialsBefore()
	var all [][]sharedChange
	for _, l := range b.listeners {
		if slices.ContainsFunc(l.Servers, func(s *Placed) bool { return s.Kind() == gateway.PassesMeshTLS }) {
			continue // its filter chains are chosen by more than the name in TLS
		}
		if l.QUIC {
			continue // Envoy does not get certificates on demand over QUIC
		}
		table := sharedTable(l.Socket)
		hosts := make([]sharedChange, 0, len(l.Servers))
		var rest []*Placed
		for _, s := range l.Servers {
			before := len(hosts)
			var own []gateway.Host
			hosts, own = s.split(hosts, credentials)
			shared := hosts[before:]
			if len(shared) > 0 && (s.ofIngress() || len(b.tables[table][s.Gateway]) < enough) {
				b.tables.add(s.Gateway, s.with(hostsOf(shared), table))
			}
			if len(own) > 0 || len(shared) == 0 {
				rest = append(rest, s.with(own, ""))
			}
		}
		if len(hosts) > 0 {
			m := omap.With(sharedHosts{}, hosts...)
			l.Servers, l.Shared, b.shared[table] = rest, &Shared{table, guards(m, rest)}, m
			all = append(all, hosts)
			b.certificates = m
		}
	}
	if len(b.shared) > 1 {
		b.certificates = omap.With(sharedHosts{}, slices.Concat(all...)...)
	}
}

// enough servers of a Gateway say which VirtualServices a shared route configuration may have: the ones for the hosts of its only server, or all that are
// bound to it.
const enough = 2

// sharedPrefix begins the names of route configurations of hosts with certificates on demand.
const sharedPrefix = "shared."

// sharedTable is the name of the route configuration of the hosts of a socket with certificates on demand.
func sharedTable(at Socket) string {
	name := sharedPrefix + strconv.FormatUint(uint64(at.Port), 10)
	if at.Bind != "" {
		name += "." + at.Bind
	}
	return name
}

// credentialsBefore returns a map for the Secrets of the hosts of the sockets before; nil for a plan with one socket for TLS, which needs none.
func (b *planner) credentialsBefore() map[string]string {
	sockets := 0
	for _, l := range b.listeners {
		if !l.QUIC && slices.ContainsFunc(l.Servers, func(s *Placed) bool { return s.Kind().IsTLS() }) {
			sockets++
		}
	}
	if sockets < 2 {
		return nil
	}
	return map[string]string{}
}

// hostsOf returns hosts with certificates on demand.
func hostsOf(shared []sharedChange) []gateway.Host {
	list := make([]gateway.Host, len(shared))
	for i, c := range shared {
		list[i] = c.New.host
	}
	return list
}

// split divides the hosts of a server into hosts with a certificate on demand, which are appended to a list, and others. credentials
// are the Secrets of the hosts of the sockets before, if there are several: a client names a host and no port, so a host that has
// another certificate at another port is among the others.
func (s *Placed) split(shared []sharedChange, credentials map[string]string) (_ []sharedChange, own []gateway.Host) {
	if s.hostHashes == nil && !s.Ordinary() {
		return shared, s.Hosts
	}
	for i, h := range s.Hosts {
		if c, known := credentials[h.Name]; !h.Exact() || known && c != s.Credential() {
			own = append(own, h)
			continue
		}
		if credentials != nil {
			credentials[h.Name] = s.Credential()
		}
		one := sharedServer{Placed: s, host: h}
		if s.hostHashes != nil {
			one.hash = s.hostHashes[i]
		} else {
			one.hash = s.hashOf(h)
		}
		shared = append(shared, omap.Put(omap.Name(h.Name), one))
	}
	return shared, own
}

// sharedBy returns the servers of a route configuration for hosts with certificates on demand that may have the routes of an object with some hosts and
// patterns. Only the servers of these hosts are read, so that another host costs the objects of others nothing.
func (q *Queries) sharedBy(r *query.Reader, k sharedKey, hosts []string) (list []*Placed) {
	add := func(s sharedServer) {
		if !slices.ContainsFunc(list, func(o *Placed) bool { return o.Hosts[0] == s.host }) {
			list = append(list, s.alone(k.table))
		}
	}
	for _, host := range hosts {
		if !mesh.IsWildcard(host) {
			if s, ok := q.shared.Get(r, k, omap.Name(host)); ok {
				add(s)
			}
			continue
		}
		for name, s := range q.shared.Merged(r, k).All() {
			if mesh.Covers(host, string(name)) {
				add(s)
			}
		}
	}
	return list
}

// guards returns the names that lead to the filter chain of some hosts: a pattern for the parent domain, unless it would take names from another
// server.
func guards(hosts sharedHosts, others []*Placed) (names []string) {
	patterns := map[string]bool{}
	for _, s := range others {
		for _, h := range s.Hosts {
			patterns[h.Name] = !h.Exact()
		}
	}
	taken := map[string]bool{} // whether a pattern of the others covers the names below a domain
	for host := range hosts.All() {
		name := string(host)
		if _, parent, ok := strings.Cut(name, "."); ok && strings.Contains(parent, ".") {
			is, known := taken[parent]
			if !known {
				is = covered(parent, patterns)
				taken[parent] = is
			}
			if !is && known {
				continue // a host before has the same pattern
			}
			if !is {
				name = "*." + parent
			}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// covered reports whether some pattern covers the names below a domain.
func covered(domain string, patterns map[string]bool) bool {
	for name := range mesh.NarrowestFirst("*." + domain) {
		if patterns[name] {
			return true
		}
	}
	return false
}
