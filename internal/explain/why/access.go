package why

import (
	"fmt"
	"net/netip"
	"slices"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/policy"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maxJudged bounds how many workloads of a service are looked at, because the loop waits for the answer.
const maxJudged = 1000

// Access is the answer to the question whether a request is allowed.
type Access struct {
	Version  int            `json:"version"`
	Revision store.Revision `json:"revision"`
	// Request is the request with the defaults filled in, and Host the host of the service in full.
	Request described.Request `json:"request"`
	Host    string            `json:"host"`
	// Verdict is the verdict of all workloads if they agree.
	Verdict access.Verdict `json:"verdict"`
	// Answers are the different answers, the answer of most workloads first.
	Answers []Judgement `json:"answers"`

	parsed    described.Parsed
	client    clientSide
	workloads []*workload
}

// Judgement is the answer of some workloads.
type Judgement struct {
	Verdict access.Verdict `json:"verdict"`
	// Workloads is how many workloads answer so, Connected how many of them have a connected proxy, and Examples are addresses of some.
	Workloads int      `json:"workloads"`
	Connected int      `json:"connected"`
	Examples  []string `json:"examples"`
	// Status is the response's status if a proxy refuses the request; 0 if it closes the connection.
	Status int `json:"status,omitempty"`
	// Transport says how the client connects, and Path is what policies see as the path.
	Transport string `json:"transport"`
	Path      string `json:"path,omitempty"`
	// Decider is the object that decides, and Rule the position of the rule in it, as spec.rules[0].
	Decider *reply.Ref `json:"decider,omitempty"`
	Rule    string     `json:"rule,omitempty"`
	// Reason says what decides besides, and Candidates are the objects that could decide otherwise.
	Reason     string      `json:"reason,omitempty"`
	Candidates []reply.Ref `json:"candidates,omitempty"`
	// Provider is the external authorizer that is asked.
	Provider string `json:"provider,omitempty"`
	// Steps are the way from the client to the workload, in order, and Fix is what the user can do where the first one fails.
	Steps []Step `json:"steps,omitempty"`
	Fix   string `json:"fix,omitempty"`
	// Notes are policies that match and do not decide.
	Notes []string `json:"notes,omitempty"`
}

// workload is an endpoint of the service that was asked about.
type workload struct {
	endpoint  mesh.PortEndpoint
	address   netip.Addr
	place     *place
	connected bool
	// plain is true if automatic mutual TLS leaves plain text, and peer the policy that decides about the mode.
	plain bool
	peer  api.Key
	mode  mesh.MTLSMode
	// trouble says why nothing is known about the workload.
	trouble string
}

// place is what the workloads of a class have in common.
type place struct {
	mode      proxy.Mode
	listeners []*resource.Resource
	// tokens are the RequestAuthentications that apply, and allow the AuthorizationPolicies that allow requests.
	tokens, allow []api.Key
	// refs locate the objects that an answer may name.
	refs map[api.Key]reply.Ref
	// provider is the extension provider that policies with the action CUSTOM name.
	provider string
}

// AskAccess asks whether a request is allowed. Complete finds the answer. An error means that the question cannot be answered as it was
// asked. It must be called by the owner of the graph, between commits.
func (m Mesh) AskAccess(d described.Request) (*Access, error) { return m.askAccess(d, m.callerClass) }

// askAccess is AskAccess for a client whose class callerClass returns.
func (m Mesh) askAccess(d described.Request, callerClass func(*query.Reader, described.Parsed) proxy.Class) (*Access, error) {
	p, err := d.Parse()
	if err != nil {
		return nil, err
	}
	r := m.Graph.Glance()
	a := &Access{Version: reply.Version, Revision: m.Graph.Revision(), Request: p.Request, Host: m.meant(r, p.Target.Host, p.Namespace), parsed: p}
	s, ok := m.serviceOf(r, a.Host, p.Namespace)
	if !ok {
		return nil, fmt.Errorf("no service %s is declared", a.Host)
	}
	port, ok := s.Port(p.Target.Port)
	if !ok {
		return nil, fmt.Errorf("the service %s has no port %d", a.Host, p.Target.Port)
	}
	a.parsed.Identify(m.Tables.TrustDomains(r)[0], port)
	endpoints := m.Queries.Services.Endpoints(r, s, port.Number)
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("the service %s has no endpoints, so there is no workload that could allow or deny anything", a.Host)
	}
	if a.parsed.From != "" {
		a.client = m.clientSide(r, a, s, callerClass(r, a.parsed))
	}
	connected := m.proxiesAt(r, endpoints)
	places := map[proxy.Class]*place{}
	for n, e := range endpoints {
		if n < maxJudged {
			w := m.workload(r, s, e, connected, places)
			if w.place != nil {
				m.addRef(w.place, a.client.at)
			}
			a.workloads = append(a.workloads, w)
		} else {
			a.workloads = append(a.workloads, &workload{endpoint: e, trouble: fmt.Sprintf("only the first %d workloads are looked at", maxJudged)})
		}
	}
	return a, nil
}

// serviceOf is a service as clients of a namespace see it, or else as its own namespace does.
func (m Mesh) serviceOf(r *query.Reader, host, namespace string) (*service.Service, bool) {
	viewers := []string{namespace}
	for c := range m.Tables.ByHost.Group(r, host).All() {
		if c.Kind == claim.Service {
			viewers = append(viewers, c.Namespace)
		}
	}
	for _, viewer := range viewers {
		if s, ok := m.Queries.Services.Service.Get(r, m.Queries.Scope.View(r, scope.HostInSet{Host: host, Set: scope.Set{Namespace: viewer}})); ok {
			return s, true
		}
	}
	return nil, false
}

// proxiesAt returns the connected sidecars at the addresses of endpoints, by address.
func (m Mesh) proxiesAt(r *query.Reader, endpoints []mesh.PortEndpoint) map[string]string {
	found := make(map[string]string, len(endpoints))
	for _, e := range endpoints {
		for id := range m.Tables.ProxiesAt.Group(r, e.Address).All() {
			if p, ok := m.Tables.Proxies.Peek(string(id)); ok && p.Role == proxy.Sidecar {
				found[e.Address] = string(id)
				break
			}
		}
	}
	return found
}

// workload collects what decides about requests to an endpoint.
func (m Mesh) workload(r *query.Reader, s *service.Service, e mesh.PortEndpoint, connected map[string]string, places map[proxy.Class]*place) *workload {
	w := &workload{endpoint: e, plain: !e.TakesMeshTLS() || !m.Tables.AutoMTLS(r)}
	var err error
	if w.address, err = netip.ParseAddr(e.Address); err != nil {
		w.trouble = fmt.Sprintf("the endpoint %s has no IP address, so nothing is known of its workload", e.Address)
		return w
	}
	id := connected[e.Address]
	p, ok := m.Tables.Proxies.Peek(id)
	if !ok { // the workload is judged as if its sidecar were connected
		p = &proxy.Proxy{
			Role: proxy.Sidecar, Addresses: []string{e.Address}, Namespace: s.Namespace, Domain: s.Namespace + ".svc." + m.Tables.Domain(), Labels: e.Labels,
		}
	}
	w.connected = ok
	class, built := m.Queries.Class.Get(r, id)
	if !built {
		class = m.Queries.Scope.ClassOf(r, p)
	}
	labels := p.Labels
	if served, _ := m.Queries.Services.Workload.Get(r, m.Queries.Scope.Workload(p)); served.HasEndpoint {
		labels = served.Labels
	}
	if m.Queries.Scope.InboundMTLS(r, class).At(e.Port) == mesh.MTLSDisabled {
		w.plain = true
	}
	decision := m.Queries.Services.Peers.Explain(r, class.Namespace, labels, e.Port)
	w.peer, w.mode = decision.By, decision.Mode
	if w.place = places[class]; w.place == nil {
		w.place = m.place(r, class)
		places[class] = w.place
	}
	m.addRef(w.place, w.peer)
	for _, held := range m.Queries.ActiveRejections(r, id) {
		if held.Type == uint8(resource.Listener) && slices.ContainsFunc(w.place.listeners, func(l *resource.Resource) bool { return l.Name() == held.Name }) {
			w.trouble = "its proxy rejects the listener " + held.Name + " and keeps the one that it had"
		}
	}
	return w
}

func (m Mesh) place(r *query.Reader, c proxy.Class) *place {
	at := &place{mode: c.Mode, listeners: m.Queries.InboundListeners(r, c), refs: map[api.Key]reply.Ref{}}
	set := policy.SetOf(m.Tables, r, c)
	for k := range set.Members(m.Tables, r, api.KindRequestAuthentication).All() {
		at.tokens = append(at.tokens, k)
		m.addRef(at, k)
	}
	for k := range set.Members(m.Tables, r, api.KindAuthorizationPolicy).All() {
		row, ok := m.Tables.Security.Authorizations.Get(r, k)
		if !ok {
			continue
		}
		switch row.Spec.GetAction() {
		case security.AuthorizationPolicy_ALLOW:
			if !row.DryRun {
				at.allow = append(at.allow, k)
			}
		case security.AuthorizationPolicy_CUSTOM:
			at.provider = row.Spec.GetProvider().GetName()
		}
		m.addRef(at, k)
	}
	return at
}

func (m Mesh) addRef(to *place, k api.Key) {
	if k != (api.Key{}) {
		to.refs[k] = m.Ref(k)
	}
}
