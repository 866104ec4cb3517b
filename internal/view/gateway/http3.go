package gateway

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/query"
)

// addHTTP3 adds the sockets for HTTP/3: each server of a TCP socket whose port is also a UDP port of a Service in front of the gateways has the
// same hosts and routes at the UDP socket.
func (q *Queries) addHTTP3(k Served, b *planner) {
	if k.Datagrams.Empty() {
		return
	}
	b.http3 = map[string]uint32{}
	for _, l := range slices.Clone(b.listeners) {
		for _, s := range l.Servers {
			at := Socket{Bind: l.Bind, Port: k.datagramPort(s.Port), QUIC: true}
			if at.Port == 0 || at.IsUnix() || !k.mayListen(at) || !q.takesHTTP3(s) {
				continue
			}
			b.place(at, s)
			b.http3[tableName(s, l.Port, b.root)] = s.Port
			if shared := sharedTable(l.Socket); k.OnDemand && s.Ordinary() && b.http3[shared] == 0 {
				b.http3[shared] = s.Port
			}
		}
	}
}

// datagramPort is the UDP port of gateways for a port of the Services in front of them; 0 if no Service has it as a UDP port.
func (k Served) datagramPort(port uint32) uint32 {
	for t := range k.Datagrams.All() {
		if t.Port == port {
			return t.Target
		}
	}
	return 0
}

// takesHTTP3 reports whether a server can take HTTP/3: it takes requests in TLS, may use TLS 1.3, and asks clients for no certificate, which Envoy
// does not support over QUIC.
func (q *Queries) takesHTTP3(s *Placed) bool {
	return s.Kind() == gateway.TakesHTTPS && s.TLS.Mode == gateway.TLSSimple && q.tables.AllowsTLS13(s.TLS.Min, s.TLS.Max)
}

// HTTP3Port returns the port at which clients reach the hosts of a route configuration over HTTP/3; 0 if they do not.
func (q *Queries) HTTP3Port(r *query.Reader, t Table) uint32 {
	if t.Datagrams.Empty() {
		return 0
	}
	port, _ := q.http3.Get(r, tableKey{t.Served, t.Name})
	return port
}
