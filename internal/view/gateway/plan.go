package gateway

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
)

// Served names the configuration that gateways serve: the Gateways with some selectors, whether they serve Ingresses, and their own port for each port of
// the Services in front of them. All replicas of a gateway have the same one.
type Served struct {
	Selectors intern.List[proxy.GatewaySelector]
	Ingress   bool
	Targets   intern.List[proxy.PortTarget]
	// Datagrams are their ports for the UDP ports of these Services, if they take HTTP/3.
	Datagrams intern.List[proxy.PortTarget]
	// Unprivileged is true if they cannot listen at ports below 1024.
	Unprivileged bool
	// OnDemand is true if they get the certificates of their hosts when clients ask for them; see Shared.
	OnDemand bool
}

// ServedOf returns what the proxies of a class serve.
func ServedOf(c proxy.Class) Served {
	return Served{c.Selectors, c.Ingress, c.Targets, c.Datagrams, c.Unprivileged, c.OnDemand}
}

// Socket is where gateways listen.
type Socket struct {
	// Bind is an IP address or a "unix://" socket; empty for any address.
	Bind string
	Port uint32
	// QUIC is true for a UDP socket, where gateways take HTTP/3.
	QUIC bool
}

// Listener is the configuration of a socket of gateways.
type Listener struct {
	Socket
	// Servers are used in this order. They are all TakesHTTP, or one that is TakesTCP, or all take TLS.
	Servers []*Placed
	// Shared are the hosts with certificates on demand; nil if there are none. Their servers are not among Servers.
	Shared *Shared
}

// Placed is a server of a Gateway or of an Ingress. It is shared by queries and never changes.
type Placed struct {
	gateway.Server
	// Gateway is the object. All Ingresses share one server without TLS, which has the oldest of them as its object.
	Gateway api.Key
	Created int64
	// Index is the position of the server in its object.
	Index int
	// Table is the name of the route configuration for its requests; empty if the server does not take requests.
	Table string
	// hash is the hash of a server as its Gateway declares it, and hostHashes has the hashes of its hosts as sharedServers; zero and nil for all other
	// servers.
	hash       omap.Hash
	hostHashes []omap.Hash
}

// Loss is a server that is not used at a port, because another one goes first.
type Loss struct {
	Loser, Winner *Placed
	// Host is the host of both; empty if they treat connections differently.
	Host string
}

// plan is the listeners of gateways, and the servers that lost a port.
type plan struct {
	listeners []*Listener
	losses    []Loss
	// tables are the servers by route configuration. Plans that are made for Problems only do not need them as a persistent map.
	tables tables
	// shared are the hosts with certificates on demand by their route configuration.
	shared map[string]sharedHosts
	// certificates are the servers of these hosts, of all sockets.
	certificates sharedHosts
	// http3 are the ports at which clients reach the hosts of route configurations over HTTP/3.
	http3 map[string]uint32
}

func (p *plan) equal(o *plan) bool {
	return slices.EqualFunc(p.listeners, o.listeners, (*Listener).equal) && slices.EqualFunc(p.losses, o.losses, Loss.equal) &&
		maps.EqualFunc(p.shared, o.shared, sharedHosts.Equal) && p.tables.equal(o.tables) && p.certificates.Equal(o.certificates) && maps.Equal(p.http3, o.http3)
}

func (l Loss) equal(o Loss) bool {
	return l.Host == o.Host && l.Loser.equal(o.Loser) && l.Winner.equal(o.Winner)
}

func (l *Listener) equal(o *Listener) bool {
	return l.Socket == o.Socket && slices.EqualFunc(l.Servers, o.Servers, (*Placed).equal) && l.Shared.equal(o.Shared)
}

func (s *Placed) equal(o *Placed) bool {
	return s == o || s.Gateway == o.Gateway && s.Created == o.Created && s.Index == o.Index && s.Table == o.Table && s.Server.Equal(o.Server)
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
	q.defineDeclared(g)
	q.plan = query.Define(g, "gatewayPlan", (*plan).equal, q.makePlan)
	q.defineTables(g)
	q.listener = query.Define(g, "gatewayListenerPlan", (*Listener).equal, func(r *query.Reader, k listenerKey) (*Listener, bool) {
		p, _ := q.plan.Get(r, k.Served)
		for _, l := range p.listeners {
			if l.Socket == k.Socket {
				return l, true
			}
		}
		return nil, false
	})
	q.http3 = query.Define(g, "gatewayHTTP3", func(a, b uint32) bool { return a == b }, func(r *query.Reader, k tableKey) (uint32, bool) {
		p, _ := q.plan.Get(r, k.Served)
		return p.http3[k.table], true
	})
	q.plainLoss = query.Define(g, "ingressPlainLoss", Loss.equal, q.lostByIngresses)
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
		if l.Shared != nil {
			tables = append(tables, omap.Put(omap.Name(l.Shared.Table), omap.Unit{}))
		}
	}
	return names{omap.With(n.sockets, sockets...), omap.With(n.tables, tables...), n.passes}
}

// Compare orders by port, then address.
func (s Socket) Compare(o Socket) int {
	return cmp.Or(cmp.Compare(s.Port, o.Port), cmp.Compare(s.Bind, o.Bind), cmp.Compare(flag(s.QUIC), flag(o.QUIC)))
}

// AppendTo appends an unambiguous form.
func (s Socket) AppendTo(b []byte) []byte {
	b = append(strconv.AppendUint(b, uint64(s.Port), 10), " "+s.Bind...)
	if s.QUIC {
		b = append(b, " QUIC"...)
	}
	return b
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

// Lost returns all servers that are not used by gateways, because others go first.
func (q *Queries) Lost(r *query.Reader, k Served) []Loss {
	p, _ := q.plan.Get(r, k)
	return p.losses
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

// PlainLoss returns why no Ingress is served without TLS, because a Gateway with the same selector goes first; false if they are.
func (q *Queries) PlainLoss(r *query.Reader) (Loss, bool) { return q.plainLoss.Get(r, struct{}{}) }

func (q *Queries) lostByIngresses(r *query.Reader, _ struct{}) (Loss, bool) {
	p, _ := q.plan.Get(r, q.SameSelector(r, q.tables.RootNamespace(r), q.tables.Ingress(r).Selector()))
	for _, l := range p.losses {
		if l.Loser.ofIngress() && !l.Loser.Secure() {
			return l, true
		}
	}
	return Loss{}, false
}

// OlderGateway returns the oldest Gateway with the selector of Ingresses that goes before an Ingress and has a server with TLS for a
// host on the port of the Ingress; false if there is none.
func (q *Queries) OlderGateway(r *query.Reader, host string, port uint32, created int64) (api.Key, bool) {
	selector, n := q.tables.Ingress(r).Selector(), 0
	for k := range q.tables.Gateways.SecureGateways.Group(r, host).All() {
		if n++; k.Created >= created || n > maxGateways {
			break // the oldest comes first
		}
		row, _ := q.tables.Gateways.Servers.Get(r, k.Key)
		own, ok := q.tables.Gateways.Selectors.Get(r, k.Key)
		has := func(s gateway.Server) bool {
			return s.Port == port && s.Bind == "" && s.Kind().IsTLS() && s.Serves(host)
		}
		if ok && own == selector && slices.ContainsFunc(row.Servers, has) {
			return k.Key, true
		}
	}
	return api.Key{}, false
}

// maxGateways bounds how many Gateways for one host are looked at.
const maxGateways = 50

// SameSelector returns what gateways of a namespace serve that only the Gateways with a selector select, with the ports that these name.
// Ingresses count as objects with a selector, which the mesh settings have.
func (q *Queries) SameSelector(r *query.Reader, namespace string, selector mesh.Labels) Served {
	ingresses := selector == q.tables.Ingress(r).Selector() && (namespace == q.tables.RootNamespace(r) || !q.tables.ScopesGateways())
	return Served{Selectors: intern.Of(q.scope.SelectorOf(namespace, selector)), Ingress: ingresses}
}

// planner makes a plan.
type planner struct {
	plan
	at   map[Socket]*site
	root string // the root namespace
}

// site is a socket of a plan.
type site struct {
	*Listener
	// taken are the servers with TLS by their hosts, as positions in Servers.
	taken map[string]int
}

// makePlan decides which servers are used, the oldest object first.
func (q *Queries) makePlan(r *query.Reader, k Served) (*plan, bool) {
	b := planner{plan: plan{tables: tables{}}, at: map[Socket]*site{}, root: q.tables.RootNamespace(r)}
	var sockets []Socket
	for _, s := range q.declared(r, k) {
		sockets = k.socketsOf(s, sockets[:0])
		for _, at := range sockets {
			if k.mayListen(at) {
				b.place(at, s)
			}
		}
	}
	q.addHTTP3(k, &b)
	slices.SortFunc(b.listeners, func(x, y *Listener) int { return x.Compare(y.Socket) })
	if k.OnDemand {
		b.share()
	}
	b.nameTables()
	return &b.plan, true
}

// nameTables gives the servers that take requests their route configurations.
func (b *planner) nameTables() {
	for _, l := range b.listeners {
		for i, s := range l.Servers {
			table := tableName(s, l.Port, b.root)
			if table == "" {
				continue
			}
			s = s.with(s.Hosts, table)
			l.Servers[i] = s
			if !b.tables.has(owner(s.Gateway), s) {
				b.tables.add(owner(s.Gateway), s)
			}
		}
	}
}

// declared returns the servers of the objects that gateways serve, in the order of precedence: the oldest first, and an Ingress before a
// Gateway of the same age.
func (q *Queries) declared(r *query.Reader, k Served) []*Placed {
	var objects []placedList // each of one object, or of one server of Ingresses: to sort all servers would move thousands
	if k.Ingress {
		for _, s := range q.ingressServers(r) {
			objects = append(objects, placedList{s})
		}
	}
	declared := q.declaredBy.Get(r, k.Selectors)
	list, from := make(placedList, 0, declared.Len()), 0
	for _, s := range declared.All() {
		if n := len(list); n > from && s.Gateway != list[n-1].Gateway {
			objects, from = append(objects, list[from:]), n
		}
		list = append(list, s.Placed)
	}
	if from < len(list) {
		objects = append(objects, list[from:])
	}
	slices.SortStableFunc(objects, func(x, y placedList) int {
		a, b := x[0], y[0]
		return cmp.Or(cmp.Compare(a.Created, b.Created), -cmp.Compare(flag(a.ofIngress()), flag(b.ofIngress())),
			cmp.Compare(a.Gateway.Name, b.Gateway.Name), cmp.Compare(a.Gateway.Namespace, b.Gateway.Namespace))
	})
	return slices.Concat(objects...)
}

// ofIngress reports whether a server belongs to an Ingress.
func (s *Placed) ofIngress() bool { return s.Gateway.Kind == ingress.Kind }

// mayListen reports whether gateways can listen at a socket: it is not the proxy's own, and they may bind it.
func (k Served) mayListen(at Socket) bool {
	const privileged = 1024 // ports below need a permission
	if at.IsUnix() {
		return true
	}
	return mesh.GatewayPort(at.Port) && (at.Port >= privileged || !k.Unprivileged)
}

// IsUnix reports whether it is a Unix domain socket.
func (s Socket) IsUnix() bool { return strings.HasPrefix(s.Bind, "unix://") }

// socketsOf returns where gateways listen for a server: at each target of its port in the Services in front of them, at the port itself if no Service
// has it, or at a Unix domain socket. They are appended to a list, which is empty.
func (k Served) socketsOf(s *Placed, list []Socket) []Socket {
	for t := range k.Targets.All() {
		if t.Port == s.Port {
			list = append(list, Socket{Bind: s.Bind, Port: t.Target})
		}
	}
	if len(list) == 0 {
		return append(list, Socket{Bind: s.Bind, Port: s.Port})
	}
	if list[0].IsUnix() {
		list = list[:1]
	}
	return list
}

// tableName is the name of the route configuration of a server at a port; empty if the server does not take requests. Ingresses count as
// Gateways of the root namespace.
func tableName(s *Placed, port uint32, root string) string {
	bind := ""
	if s.Bind != "" {
		bind = "." + s.Bind
	}
	name, namespace := s.Gateway.Name, s.Gateway.Namespace
	if s.ofIngress() {
		name, namespace = gateway.IngressGateway(namespace, name), root
	}
	switch s.Kind() {
	case gateway.TakesHTTP:
		return "http." + strconv.FormatUint(uint64(port), 10) + bind
	case gateway.TakesHTTPS:
		return "https." + strconv.FormatUint(uint64(s.Port), 10) + "." + s.PortName + "." + name + "." + namespace + bind
	}
	return ""
}

// place adds a server at a socket, unless another one goes first. Servers that take requests without TLS share a
// socket. Servers that take TLS share one if they have no host in common, because clients ask for a host by name. An Ingress keeps the
// hosts that no other server has: a certificate is for each of them.
func (b *planner) place(at Socket, s *Placed) {
	l := b.at[at]
	if l == nil {
		l = &site{&Listener{Socket: at}, map[string]int{}}
		b.at[at] = l
		b.listeners = append(b.listeners, l.Listener)
	}
	if kind := s.Kind(); len(l.Servers) > 0 {
		first := l.Servers[0]
		if !kind.IsTLS() || !first.Kind().IsTLS() {
			if kind == gateway.TakesHTTP && first.Kind() == kind {
				l.Servers = append(l.Servers, s)
			} else {
				b.losses = append(b.losses, Loss{Loser: s, Winner: first})
			}
			return
		}
	}
	free := s.Hosts
	for _, host := range s.Hosts {
		winner, taken := l.taken[host.Name]
		if !taken {
			continue
		}
		b.losses = append(b.losses, Loss{s, l.Servers[winner], host.Name})
		if !s.ofIngress() {
			return
		}
		free = slices.DeleteFunc(slices.Clone(free), func(h gateway.Host) bool { return h == host })
	}
	if len(free) == 0 && len(s.Hosts) > 0 {
		return
	}
	if s.Kind().IsTLS() {
		for _, host := range free {
			l.taken[host.Name] = len(l.Servers)
		}
	}
	if len(free) < len(s.Hosts) {
		s = s.with(free, "")
	}
	l.Servers = append(l.Servers, s)
}
