// Package entrance answers how a request from outside enters the mesh: which gateways, which server of a Gateway or Ingress, which
// certificate, which rule and which destinations answer it, or why none does. It also lists the hosts of gateways with their owners.
//
// It owns the form of answers and their wording, and decides nothing: all follows from the queries that gateways are configured by. Each
// front, which is a set of gateways with the same configuration, is described on its own. Gateways that are not connected are described
// by the selectors of the objects, with the ports that these name.
//
// Ask and List must be called by the owner of the graph, between commits. The package starts no goroutines.
package entrance

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// Version is the version of the form of answers. It changes when a field is removed or changes its meaning.
const Version = 1

// maxListed bounds how many fronts, proxies, rules and claims an answer lists, because the loop waits for it.
const maxListed = 500

// Question is what a client asks for.
type Question struct {
	// Host is the Host header and the SNI. Port is the port that the client connects to, which is one of the Service in front of the gateways;
	// 0 for all. Path is the path of the request; empty for all.
	Host string
	Port uint32
	Path string
}

// Parse understands HOST[:PORT][/PATH], with or without a scheme before it.
func Parse(text string) (q Question, err error) {
	rest, secure := strings.CutPrefix(text, "https://")
	rest, plain := strings.CutPrefix(rest, "http://")
	host, path, found := strings.Cut(rest, "/")
	if found {
		q.Path, _, _ = strings.Cut("/"+path, "?")
		q.Path, _, _ = strings.Cut(q.Path, "#")
	}
	switch {
	case secure:
		q.Port = 443
	case plain:
		q.Port = 80
	}
	if name, port, err := net.SplitHostPort(host); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return q, fmt.Errorf("%q is no port; write HOST[:PORT][/PATH]", port)
		}
		host, q.Port = name, uint32(n)
	}
	q.Host = strings.ToLower(strings.TrimSuffix(host, "."))
	if q.Host == "" || strings.ContainsAny(q.Host, " /:@") {
		return q, fmt.Errorf("%q has no host; write HOST[:PORT][/PATH], such as shop.example.com:443/cart", text)
	}
	return q, nil
}

// Answer is the answer to a Question.
type Answer struct {
	Version  int            `json:"version"`
	Revision store.Revision `json:"revision"`
	Host     string         `json:"host"`
	Port     uint32         `json:"port,omitempty"`
	Path     string         `json:"path,omitempty"`
	// Served is true if some gateway has a destination or a response of its own for the request.
	Served bool `json:"served"`
	// Fronts are the gateways that have the host, and Reasons why others, or all, do not.
	Fronts  []Front  `json:"gateways"`
	Reasons []string `json:"reasons,omitempty"`
}

// Front is a set of gateways with the same configuration.
type Front struct {
	Namespace string `json:"namespace"`
	// Selector are the labels of the gateways, if none is connected, and Proxies the connected ones.
	Selector string   `json:"selector,omitempty"`
	Proxies  []string `json:"proxies,omitempty"`
	Servers  []Server `json:"servers"`
}

// Server is a server that takes the request.
type Server struct {
	Object reply.Ref `json:"object"`
	Field  string    `json:"field,omitempty"`
	// Port is the port that the object names, and Listens the port where the gateways listen.
	Port     uint32 `json:"port"`
	Listens  uint32 `json:"listens"`
	Protocol string `json:"protocol"`
	// Host is the host or pattern of the server by which it was chosen.
	Host string `json:"host"`
	// Redirects is true if requests are redirected to HTTPS.
	Redirects    bool          `json:"redirects,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	// Routes are in the order in which they are tried.
	Routes []Route `json:"routes"`
	// Trouble says why requests fail; empty if nothing is wrong.
	Trouble string `json:"trouble,omitempty"`
}

// Certificate is what a server shows to clients.
type Certificate struct {
	// Secret is the name of the Secret, in the namespace of the gateways; or Files the name of a file.
	Secret  string     `json:"secret,omitempty"`
	File    string     `json:"file,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	Trouble string     `json:"trouble,omitempty"`
}

// Mesh is what questions are answered from.
type Mesh struct {
	why.Mesh
	// Now is the present time, to find expired certificates.
	Now time.Time
}

// front is a set of gateways that is looked at.
type front struct {
	gateway.Proxies
	selector string
	names    []string
}

// inquiry is a question that is being answered.
type inquiry struct {
	Mesh
	Question
	r *query.Reader
}

// Ask answers a question.
func (m Mesh) Ask(q Question) *Answer {
	i := &inquiry{Mesh: m, Question: q, r: m.Graph.Glance()}
	a := &Answer{Version: Version, Revision: m.Graph.Revision(), Host: q.Host, Port: q.Port, Path: q.Path, Fronts: []Front{}}
	fronts := i.fronts()
	for _, f := range fronts {
		servers := i.servers(f)
		if len(servers) == 0 || len(a.Fronts) == maxListed {
			continue
		}
		a.Fronts = append(a.Fronts, Front{Namespace: f.Namespace, Selector: f.selector, Proxies: f.names, Servers: servers})
		if len(f.names) == 0 {
			a.Reasons = append(a.Reasons, fmt.Sprintf("no gateway with the labels %s is connected", cmp.Or(f.selector, "(any)")))
		}
		for _, s := range servers {
			a.Served = a.Served || s.answers()
		}
	}
	switch {
	case len(fronts) == 0:
		a.Reasons = append(a.Reasons, "there is no Gateway, and no Ingress that counts")
	case len(a.Fronts) == 0:
		a.Reasons = append(a.Reasons, i.missing()...)
	}
	slices.Sort(a.Reasons)
	a.Reasons = slices.Compact(a.Reasons)
	return a
}

// answers reports whether the server answers the request in some way.
func (s Server) answers() bool {
	return s.Redirects || slices.ContainsFunc(s.Routes, func(r Route) bool { return r.Trouble == "" })
}

// fronts returns the connected gateways by configuration, and one front for each selector of Gateways, and of Ingresses, that no connected
// gateway has.
func (m Mesh) fronts() (list []front) {
	r := m.Graph.Glance()
	at := map[gateway.Proxies]int{}
	var served []gateway.Served
	for connection := range m.Tables.RoutersWith.Peek(mesh.Label{}).All() {
		p, _ := m.Tables.Proxies.Peek(string(connection))
		c, ok := m.Queries.Class.Get(r, string(connection))
		if !ok || p == nil {
			continue
		}
		k := gateway.Proxies{Served: gateway.ServedOf(c), Namespace: c.Namespace, Labels: c.Labels, Rules: scope.RulesOf(c)}
		n, known := at[k]
		if !known {
			n = len(list)
			at[k] = n
			list = append(list, front{Proxies: k})
			served = append(served, k.Served)
		}
		if len(list[n].names) < maxListed {
			list[n].names = append(list[n].names, p.Name+"."+p.Namespace)
		}
	}
	for n := range list {
		slices.Sort(list[n].names)
	}
	slices.SortFunc(list, func(a, b front) int { return slices.Compare(a.names, b.names) })
	var rest []front
	add := func(namespace string, selector mesh.Labels, has func(gateway.Served) bool) {
		if slices.ContainsFunc(served, has) {
			return
		}
		k := gateway.Proxies{Served: m.Queries.Gateways.SameSelector(r, namespace, selector), Namespace: namespace}
		if !slices.ContainsFunc(rest, func(f front) bool { return f.Served == k.Served }) {
			rest = append(rest, front{Proxies: k, selector: selectorText(selector)})
		}
	}
	for k, selector := range m.Tables.Gateways.Selectors.All() {
		add(k.Namespace, selector, func(s gateway.Served) bool { return s.Selectors.Has(m.Queries.Scope.SelectorOf(k.Namespace, selector)) })
	}
	if m.Queries.Gateways.AnyIngress(r) {
		add(m.Tables.RootNamespace(r), m.Tables.Ingress(r).Selector(), func(s gateway.Served) bool { return s.Ingress })
	}
	slices.SortFunc(rest, func(a, b front) int {
		return cmp.Or(cmp.Compare(a.selector, b.selector), cmp.Compare(a.Namespace, b.Namespace))
	})
	return append(list, rest...)
}

func selectorText(selector mesh.Labels) string {
	var list []string
	for l := range selector.All() {
		list = append(list, l.String())
	}
	return strings.Join(list, ",")
}

// servers returns the servers of a front that take the request: at most one for each socket.
func (i *inquiry) servers(f front) (list []Server) {
	for at := range i.Queries.Gateways.Sockets(i.r, f.Served).All() {
		servers, ok := i.Queries.Gateways.ServersAt(i.r, f.Served, at)
		if !ok || at.QUIC { // it has the hosts of a TCP socket
			continue
		}
		s, host, ok := i.chosen(servers)
		if !ok || i.Port != 0 && i.Port != s.Port {
			continue
		}
		list = append(list, i.server(f, s, at, host))
	}
	return list
}

// chosen returns the server of a socket that takes the request: with TLS the one with the narrowest pattern for the host.
func (i *inquiry) chosen(servers []*gateway.Placed) (s *gateway.Placed, host string, ok bool) {
	if servers[0].Kind() == gateways.TakesTCP {
		return servers[0], gateways.AnyHost, true
	}
	for name := range mesh.NarrowestFirst(i.Host) {
		for _, s := range servers {
			if s.Serves(name) {
				return s, name, true
			}
		}
	}
	return s, "", false
}

func (i *inquiry) server(f front, s *gateway.Placed, at gateway.Socket, host string) Server {
	out := Server{
		Object: i.ref(s.Gateway), Field: s.Field, Port: s.Port, Listens: at.Port, Protocol: s.Protocol.String(), Host: host,
		Redirects: s.Redirects(), Routes: []Route{}, Certificates: i.certificates(f, s),
	}
	if s.Table != "" {
		out.Routes = i.routes(f, s)
		if len(out.Routes) == 0 && !out.Redirects {
			out.Trouble = "no VirtualService or Ingress has routes for the request here: it gets 404"
		}
		return out
	}
	for _, b := range i.Queries.Gateways.Bound(i.r, f.Proxies, s) {
		if slices.ContainsFunc(b.Hosts, func(h string) bool { return mesh.Covers(h, i.Host) || host == gateways.AnyHost }) {
			out.Routes = append(out.Routes, i.connections(f, s, b.Object)...)
		}
	}
	if len(out.Routes) == 0 && s.Kind() != gateways.PassesMeshTLS {
		out.Trouble = "no VirtualService has routes for the connection here: it is closed"
	}
	return out
}

// certificates returns what a server shows to clients.
func (i *inquiry) certificates(f front, s *gateway.Placed) (list []Certificate) {
	if !s.Secure() {
		return nil
	}
	if s.TLS.Mode == gateways.TLSMesh {
		return []Certificate{{Secret: "(the identity of the gateway)"}}
	}
	for _, name := range s.TLS.Credentials {
		c := Certificate{Secret: name}
		row, ok := i.Tables.Kube.Secrets.Peek(api.Key{Kind: kube.KindSecret, Namespace: f.Namespace, Name: name, Cluster: i.Tables.ClusterID()})
		if !ok {
			row, ok = i.Tables.Kube.Secrets.Peek(api.Key{Kind: kube.KindSecret, Namespace: f.Namespace, Name: name})
		}
		switch {
		case !ok:
			c.Trouble = "not read, because no connected gateway gets it"
		case row.Trouble != "":
			c.Trouble = row.Trouble
		case row.Content == nil:
			c.Trouble = "there is no such Secret in namespace " + f.Namespace
		default:
			expires := row.Content.Expires()
			if _, _, ok := row.Content.Pair(); !ok {
				c.Trouble = "it has no certificate with its key that can be used"
			} else if c.Expires = &expires; expires.Before(i.Now) {
				c.Trouble = "it has expired"
			}
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		for _, pair := range s.TLS.Certificates {
			list = append(list, Certificate{File: pair[0]})
		}
	}
	return list
}

// missing says why no gateway has the host.
func (i *inquiry) missing() (list []string) {
	for _, c := range i.claims() {
		if len(list) == maxListed || !mesh.Covers(c.Host, i.Host) {
			continue
		}
		if c.Unused != "" {
			list = append(list, fmt.Sprintf("%s has a server for %s on port %d, and it is not used: %s", c.Object.Key(), c.Host, c.Port, c.Unused))
		} else if i.Port != 0 && c.Port != i.Port {
			list = append(list, fmt.Sprintf("%s has the host %s on port %d", c.Object.Key(), c.Host, c.Port))
		}
	}
	if len(list) == 0 {
		list = []string{"no server of a Gateway or Ingress has the host"}
	}
	return list
}

func (m Mesh) ref(k api.Key) reply.Ref {
	at, _ := m.Tables.Positions.Peek(k)
	return reply.RefTo(k, at)
}
