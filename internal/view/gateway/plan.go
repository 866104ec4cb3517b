package gateway

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
)

// Served names the configuration that gateways serve: their Gateways, and their own port for each port of the Services
// in front of them. All replicas of a gateway have the same one.
type Served struct {
	Gateways intern.List[api.Key]
	Targets  intern.List[proxy.PortTarget]
	// Unprivileged is true if they cannot listen at ports below 1024.
	Unprivileged bool
}

// ServedOf returns what the proxies of a class serve.
func ServedOf(c proxy.Class) Served { return Served{c.Gateways, c.Targets, c.Unprivileged} }

// Socket is where gateways listen.
type Socket struct {
	// Bind is an IP address or a "unix://" socket; empty for any address.
	Bind string
	Port uint32
}

// Listener is the configuration of a socket of gateways.
type Listener struct {
	Socket
	// Servers are used in this order. They are all TakesHTTP, or one that is TakesTCP, or all take TLS.
	Servers []Placed
}

// Placed is a server of a Gateway.
type Placed struct {
	gateway.Server
	Gateway api.Key
	Created int64
	// Index is the position of the server in its Gateway.
	Index int
	// Table is the name of the route configuration for its requests; empty if the server does not take requests.
	Table string
}

// Loss is a server that is not used at a port, because another one goes first.
type Loss struct {
	Loser, Winner Placed
	// Host is the host of both; empty if they treat connections differently.
	Host string
}

// plan is the listeners of gateways, and the servers that lost a port.
type plan struct {
	listeners []*Listener
	losses    []Loss
}

func (p *plan) equal(o *plan) bool {
	return slices.EqualFunc(p.listeners, o.listeners, (*Listener).equal) && slices.EqualFunc(p.losses, o.losses, func(a, b Loss) bool {
		return a.Host == b.Host && a.Loser.equal(b.Loser) && a.Winner.equal(b.Winner)
	})
}

func (l *Listener) equal(o *Listener) bool {
	return l.Socket == o.Socket && slices.EqualFunc(l.Servers, o.Servers, Placed.equal)
}

func (s Placed) equal(o Placed) bool {
	return s.Gateway == o.Gateway && s.Created == o.Created && s.Index == o.Index && s.Table == o.Table && s.Server.Equal(o.Server)
}

// listenerKey names a listener of gateways, and tableKey the servers of one of their route configurations.
type listenerKey struct {
	Served
	Socket
}

type tableKey struct {
	Served
	table string
}

func (q *Queries) definePlans(g *query.Graph) {
	q.plan = query.Define(g, "gatewayPlan", (*plan).equal, q.makePlan)
	q.listener = query.Define(g, "gatewayListenerPlan", (*Listener).equal, func(r *query.Reader, k listenerKey) (*Listener, bool) {
		p, _ := q.plan.Get(r, k.Served)
		for _, l := range p.listeners {
			if l.Socket == k.Socket {
				return l, true
			}
		}
		return nil, false
	})
	q.table = query.Define(g, "gatewayTable", func(a, b []Placed) bool { return slices.EqualFunc(a, b, Placed.equal) }, func(r *query.Reader, k tableKey) ([]Placed, bool) {
		var list []Placed
		p, _ := q.plan.Get(r, k.Served)
		for _, l := range p.listeners {
			for _, s := range l.Servers {
				same := func(o Placed) bool { return o.Gateway == s.Gateway && o.Index == s.Index }
				if s.Table == k.table && !slices.ContainsFunc(list, same) {
					list = append(list, s)
				}
			}
		}
		return list, len(list) > 0
	})
	q.names = query.Define(g, "gatewayNames", names.equal, func(r *query.Reader, k Served) (names, bool) {
		p, _ := q.plan.Get(r, k)
		return namesOf(p), true
	})
}

// names are the sockets of gateways and the names of their route configurations.
type names struct {
	sockets omap.Map[Socket, omap.Unit]
	tables  omap.Map[omap.Name, omap.Unit]
	// passes is true if some server forwards TLS of the mesh.
	passes bool
}

func (n names) equal(o names) bool {
	return n.passes == o.passes && n.sockets.Equal(o.sockets) && n.tables.Equal(o.tables)
}

func namesOf(p *plan) (n names) {
	var sockets []omap.Change[Socket, omap.Unit]
	var tables []omap.Change[omap.Name, omap.Unit]
	for _, l := range p.listeners {
		sockets = append(sockets, omap.Put(l.Socket, omap.Unit{}))
		for _, s := range l.Servers {
			n.passes = n.passes || s.Kind() == gateway.PassesMeshTLS
			if s.Table != "" {
				tables = append(tables, omap.Put(omap.Name(s.Table), omap.Unit{}))
			}
		}
	}
	return names{n.sockets.With(sockets...), n.tables.With(tables...), n.passes}
}

// Compare orders by port, then address.
func (s Socket) Compare(o Socket) int {
	return cmp.Or(cmp.Compare(s.Port, o.Port), cmp.Compare(s.Bind, o.Bind))
}

// AppendTo appends an unambiguous form.
func (s Socket) AppendTo(b []byte) []byte {
	return append(strconv.AppendUint(b, uint64(s.Port), 10), " "+s.Bind...)
}

// Sockets returns where gateways listen.
func (q *Queries) Sockets(r *query.Reader, k Served) omap.Map[Socket, omap.Unit] {
	n, _ := q.names.Get(r, k)
	return n.sockets
}

// Tables returns the names of the route configurations of gateways.
func (q *Queries) Tables(r *query.Reader, k Served) omap.Map[omap.Name, omap.Unit] {
	n, _ := q.names.Get(r, k)
	return n.tables
}

// PassesMesh reports whether gateways forward TLS of the mesh.
func (q *Queries) PassesMesh(r *query.Reader, k Served) bool {
	n, _ := q.names.Get(r, k)
	return n.passes
}

// Listener returns the configuration of a socket of gateways; false if they do not listen there.
func (q *Queries) Listener(r *query.Reader, k Served, at Socket) (*Listener, bool) {
	return q.listener.Get(r, listenerKey{k, at})
}

// Losses returns the servers of a Gateway that are not used by gateways, because others go first.
func (q *Queries) Losses(r *query.Reader, k Served, gw api.Key) (list []Loss) {
	p, _ := q.plan.Get(r, k)
	for _, l := range p.losses {
		if l.Loser.Gateway == gw {
			list = append(list, l)
		}
	}
	return list
}

// SameSelector returns what gateways of a namespace serve that only the Gateways with a selector select, with the ports that these name.
func (q *Queries) SameSelector(r *query.Reader, namespace string, selector mesh.Labels) Served {
	var first mesh.Label
	for l := range selector.All() {
		first = l
		break
	}
	var same []api.Key
	for g := range q.tables.Gateways.Selecting.Group(r, first).All() {
		if g.Labels == selector && (g.Key.Namespace == namespace || !q.tables.ScopesGateways()) {
			same = append(same, g.Key)
		}
	}
	slices.SortFunc(same, api.Key.Compare)
	return Served{Gateways: intern.Of(same...)}
}

// planner makes a plan.
type planner struct {
	plan
	at map[Socket]*Listener
}

// makePlan decides which servers are used, the oldest Gateway first.
func (q *Queries) makePlan(r *query.Reader, k Served) (*plan, bool) {
	type aged struct {
		key api.Key
		row *state.GatewayServers
	}
	var objects []aged
	for g := range k.Gateways.All() {
		if row, ok := q.tables.Gateways.Servers.Get(r, g); ok {
			objects = append(objects, aged{g, row})
		}
	}
	slices.SortFunc(objects, func(a, b aged) int {
		return cmp.Or(cmp.Compare(a.row.Created, b.row.Created), cmp.Compare(a.key.Name, b.key.Name), cmp.Compare(a.key.Namespace, b.key.Namespace))
	})
	b := planner{at: map[Socket]*Listener{}}
	for _, o := range objects {
		for i, s := range o.row.Servers {
			for _, port := range k.portsFor(s.Port) {
				if at := (Socket{s.Bind, port}); k.mayListen(at) {
					b.place(at, Placed{Server: s, Gateway: o.key, Created: o.row.Created, Index: i, Table: tableName(s, o.key, port)})
				}
			}
		}
	}
	slices.SortFunc(b.listeners, func(x, y *Listener) int { return x.Compare(y.Socket) })
	return &b.plan, true
}

// mayListen reports whether gateways can listen at a socket: it is not the proxy's own, and they may bind it.
func (k Served) mayListen(at Socket) bool {
	const privileged = 1024 // ports below need a permission
	if at.IsUnix() {
		return true
	}
	return !mesh.Reserved(at.Port, true) && (at.Port >= privileged || !k.Unprivileged)
}

// IsUnix reports whether it is a Unix domain socket.
func (s Socket) IsUnix() bool { return strings.HasPrefix(s.Bind, "unix://") }

// portsFor are the ports of gateways for a port of the Services in front of them: the port itself if no Service has it.
func (k Served) portsFor(port uint32) (list []uint32) {
	for t := range k.Targets.All() {
		if t.Port == port {
			list = append(list, t.Target)
		}
	}
	if len(list) == 0 {
		list = []uint32{port}
	}
	return list
}

// tableName is the name of the route configuration of a server at a port; empty if the server does not take requests.
func tableName(s gateway.Server, gw api.Key, port uint32) string {
	bind := ""
	if s.Bind != "" {
		bind = "." + s.Bind
	}
	switch s.Kind() {
	case gateway.TakesHTTP:
		return "http." + strconv.FormatUint(uint64(port), 10) + bind
	case gateway.TakesHTTPS:
		return "https." + strconv.FormatUint(uint64(s.Port), 10) + "." + s.PortName + "." + gw.Name + "." + gw.Namespace + bind
	}
	return ""
}

// place adds a server at a socket, unless another one goes first. Servers that take requests without TLS share a
// socket. Servers that take TLS share one if they have no host in common, because clients ask for a host by name.
func (b *planner) place(at Socket, s Placed) {
	l := b.at[at]
	if l == nil {
		l = &Listener{Socket: at}
		b.at[at] = l
		b.listeners = append(b.listeners, l)
	}
	kind := s.Kind()
	for _, first := range l.Servers {
		other := first.Kind()
		if kind == other && kind == gateway.TakesHTTP {
			continue
		}
		if !kind.IsTLS() || !other.IsTLS() {
			b.losses = append(b.losses, Loss{Loser: s, Winner: first})
			return
		}
		for _, host := range s.Hosts {
			if first.Serves(host.Name) {
				b.losses = append(b.losses, Loss{s, first, host.Name})
				return
			}
		}
	}
	l.Servers = append(l.Servers, s)
}
