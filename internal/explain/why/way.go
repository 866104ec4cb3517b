package why

import (
	"cmp"
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Step is a part of the way of a request from the client to the workload.
type Step struct {
	// Name is one of host, route, client TLS, server TLS, proxy, policies.
	Name string `json:"name"`
	// Verdict is Allowed if the request gets past the step, Denied if it fails there, and Unknown if that depends on unknown attributes.
	Verdict access.Verdict `json:"verdict"`
	Text    string         `json:"text"`
	// Object is what decides, and Field the path in its document.
	Object *reply.Ref `json:"object,omitempty"`
	Field  string     `json:"field,omitempty"`
	// Fix is what the user can do.
	Fix string `json:"fix,omitempty"`
}

// clientSide is what the client's side does with a request.
type clientSide struct {
	steps []Step
	// tls is what the DestinationRule says of TLS; nil if mutual TLS is automatic. at is the rule, and field its path there.
	tls   *networking.ClientTLSSettings
	at    api.Key
	field string
	// past is true if the proxy does not have the host, and lets requests through to the address that they were made to.
	past bool
	// via is the host to which the proxy sends requests for hosts that it does not have; empty if it lets them through or refuses them.
	via string
}

// maxCallers bounds how many proxies of a namespace are looked at to find one of the client's account.
const maxCallers = 1000

// callerClass returns the class of a connected sidecar of the client's account, the one with the first node id. If there is none,
// it is the class of a sidecar of the namespace that no rule with a workload selector selects.
func (m Mesh) callerClass(r *query.Reader, p described.Parsed) proxy.Class {
	looked := 0
	for id := range m.Tables.ProxiesIn.Group(r, p.Namespace).All() {
		if looked++; looked > maxCallers {
			break
		}
		one, ok := m.Tables.Proxies.Peek(string(id))
		if !ok || one.Role != proxy.Sidecar || accountOf(one) != p.Account {
			continue
		}
		if class, built := m.Queries.Class.Get(r, string(id)); built {
			return class
		}
	}
	return m.Queries.Scope.ClassOf(r, &proxy.Proxy{Role: proxy.Sidecar, Namespace: p.Namespace, Domain: p.Namespace + ".svc." + m.Tables.Domain()})
}

// accountOf returns the service account of a proxy, by its certificate if it has shown one.
func accountOf(p *proxy.Proxy) string {
	if !p.Identity.IsZero() {
		return p.Identity.ServiceAccount
	}
	return p.Account
}

// clientSide finds out what the client's proxy does with a request: which host it sees, which routes decide, and how it speaks TLS.
func (m Mesh) clientSide(r *query.Reader, a *Access, s *service.Service, class proxy.Class) (c clientSide) {
	set := scope.SetOf(class)
	i := &inquiry{Mesh: m, r: r, class: class, set: set}
	seen := i.hostFor(a.Host)
	host := m.hostStep(i, seen, s)
	c.steps = append(c.steps, host)
	if host.Verdict != access.Allowed {
		c.past = host.Verdict == access.Unknown
		if outbound := m.Queries.Scope.Outbound(r, set); c.past && class.Mode != proxy.None {
			c.via = outbound.Host
		}
		return c
	}
	step, subset := m.routeStep(r, seen)
	c.steps = append(c.steps, step)
	if a.parsed.Plaintext || a.parsed.MutualTLS {
		return c // the description says how the client connects
	}
	policy, ok := m.Queries.Rules.Policy.Get(r, seen.view)
	if !ok {
		return c
	}
	c.tls = m.Queries.Rules.Settings(r, policy, policy.Subset(subset), a.parsed.Target.Port).TLS
	for _, k := range policy.Objects {
		if rule, ok := m.Tables.DestinationRules.Peek(k); ok && c.tls != nil && c.field == "" {
			c.at, c.field = k, traffic.TLSField(rule.Spec, c.tls)
		}
	}
	return c
}

// hostStep checks whether the client's proxy has the host. It is Unknown where the proxy lets requests for other hosts through: whether
// they arrive depends on the address that they are made to.
func (m Mesh) hostStep(i *inquiry, seen hostSeen, s *service.Service) Step {
	step := Step{Name: "host", Verdict: access.Allowed, Text: "the client's proxy has " + seen.host}
	declaration := m.Ref(s.Declarations[0].Object)
	step.Object = &declaration
	home := service.DeclaringNamespace(i.Tables.ByHost.Group(i.r, seen.host), i.class.Namespace)
	switch {
	case seen.service == nil:
		step.Text = fmt.Sprintf("%s is not exported to namespace %s", seen.host, i.class.Namespace)
		step.Fix = fmt.Sprintf("add %q to its spec.exportTo", i.class.Namespace)
	case !seen.inScope && i.Queries.Scope.ImportedThrough(i.r, scope.HostInSet{Host: seen.host, Set: i.set}) == "":
		ref := m.Ref(i.class.Sidecar)
		step.Object, step.Field, step.Text = &ref, "spec.egress", "the Sidecar hides "+seen.host+", because its egress does not name the host"
		step.Fix = fmt.Sprintf("add %q to spec.egress[].hosts", home+"/"+seen.host)
	default:
		return step
	}
	switch outbound := i.Queries.Scope.Outbound(i.r, i.set); {
	case i.class.Mode == proxy.None:
		step.Verdict, step.Text = access.Unknown, step.Text+"; the proxy captures nothing, so a client that reaches the service does so without it"
	case outbound.Mode == settings.RegistryOnly:
		step.Verdict, step.Text = access.Denied, step.Text+", and the proxy refuses requests for such hosts (REGISTRY_ONLY)"
	case outbound.Host != "":
		step.Verdict, step.Text = access.Unknown, step.Text+"; the proxy sends requests for such hosts to "+outbound.Host
	default:
		step.Verdict, step.Text = access.Unknown, step.Text+"; the proxy lets requests for such hosts through in plain text, without a route, TLS or rule (ALLOW_ANY)"
	}
	return step
}

// routeStep finds out which VirtualService decides, and which subset its requests go to if there is only one.
func (m Mesh) routeStep(r *query.Reader, seen hostSeen) (step Step, subset string) {
	step = Step{Name: "route", Verdict: access.Allowed, Text: "no VirtualService: requests go to the service"}
	list, _ := m.Queries.Rules.Routes.Get(r, seen.view)
	if len(list) == 0 || len(list[0].Spec.GetHttp()) == 0 {
		return step, ""
	}
	ref := m.Ref(list[0].Object)
	step.Object, step.Field = &ref, "spec.http"
	step.Text = "its rules decide where requests go; those for other destinations are not judged here"
	for n, rule := range list[0].Spec.GetHttp() {
		if len(rule.GetMatch()) > 0 {
			continue
		}
		if len(rule.GetRoute()) == 1 && n == 0 {
			subset = rule.Route[0].GetDestination().GetSubset()
			step.Field, step.Text = "spec.http[0]", "its first rule has no condition, and one destination"
		}
		break
	}
	for _, p := range state.ProblemsOf(m.Problems, list[0].Object) {
		if step.Field == "spec.http[0]" && (p.Field == "spec.http[0].route[0].destination.host" || p.Field == "spec.http[0].route[0].destination.subset") {
			step.Verdict, step.Field, step.Text = access.Denied, p.Field, p.Reason
		}
	}
	return step, subset
}

// clientStep describes how the client's proxy connects: with tls, or in plain text if it is nil.
func (w *workload) clientStep(c clientSide, tls *access.TLS) Step {
	step := Step{Name: "client TLS", Verdict: access.Allowed, Text: transport(tls)}
	if c.past && tls == nil {
		return step
	}
	if c.tls == nil {
		step.Text += ", automatic"
		if tls == nil {
			step.Text = "plain text: automatic mutual TLS is off, or the endpoint does not take it"
		}
		return step
	}
	step.Object, step.Field = w.place.ref(c.at), c.field
	step.Text += ", by the mode " + c.tls.GetMode().String()
	return step
}

// serverStep describes how the mode of the workload decides. failed is true if it closes the connection.
func (w *workload) serverStep(c clientSide, failed bool) Step {
	step := Step{Name: "server TLS", Verdict: access.Allowed, Text: "the mode is " + w.mode.String(), Object: w.place.ref(w.peer)}
	if failed {
		step.Verdict, step.Text = access.Denied, step.Text+", and takes no such connection"
		if c.tls != nil {
			step.Fix = fmt.Sprintf("remove %s of %s, so that mutual TLS is automatic", c.field, c.at)
		}
	}
	return step
}

// proxyStepName names the step that says whether proxies are connected.
const proxyStepName = "proxy"

func (s Step) isProxy() bool { return s.Name == proxyStepName }

// proxyStep says at how many workloads a proxy is connected.
func proxyStep(connected, workloads int) Step {
	switch connected {
	case workloads:
		return Step{Name: proxyStepName, Verdict: access.Allowed, Text: "a proxy is connected there"}
	case 0:
		return Step{Name: proxyStepName, Verdict: access.Unknown, Text: "no proxy is connected there: the answer is what a sidecar would do"}
	}
	return Step{
		Name: proxyStepName, Verdict: access.Unknown,
		Text: fmt.Sprintf("connected at %d of %d workloads: the answer for the others is what a sidecar would do", connected, workloads),
	}
}

// way adds the steps to a judgement. The first step that fails is the answer.
func (w *workload) way(j *Judgement, c clientSide, tls *access.TLS, tcp, atConnection bool) {
	if w.place == nil {
		return
	}
	j.Steps = append(j.Steps, c.steps...)
	if len(c.steps) > 0 {
		j.Steps = append(j.Steps, w.clientStep(c, tls))
	}
	j.Steps = append(j.Steps, Step{Name: proxyStepName}, w.serverStep(c, atConnection)) // Complete fills the first one in
	if !atConnection {
		text := j.Reason
		if j.Rule != "" {
			text = "decided by " + j.Rule
		}
		j.Steps = append(j.Steps, Step{Name: "policies", Verdict: j.Verdict, Text: text, Object: j.Decider})
	}
	if c.via != "" { // what the workload would answer to the client itself does not matter
		j.Verdict, j.Status, j.Decider, j.Rule, j.Candidates = access.Unknown, 0, nil, "", nil
		j.Reason = "the request goes to " + c.via + ", which decides whether it comes here"
	}
	for _, step := range j.Steps {
		if step.Verdict == access.Allowed {
			continue
		}
		j.Fix = cmp.Or(j.Fix, step.Fix)
		if step.Verdict != access.Denied || c.via != "" {
			continue
		}
		if status, own := refusedBy(step, tcp); own {
			j.Verdict, j.Status, j.Decider, j.Rule, j.Reason, j.Candidates = access.Denied, status, step.Object, step.Field, step.Text, nil
		}
		return
	}
}

// refusedBy returns the status with which the client's own proxy refuses a request at a step, and 0 if it closes the connection. own is
// false for steps at the workload.
func refusedBy(s Step, tcp bool) (status int, own bool) {
	switch {
	case s.Name != "host" && s.Name != "route":
		return 0, false
	case tcp:
		return 0, true
	case s.Name == "host":
		return 502, true
	}
	return 503, true
}

// takesNoTLS reports whether the client insists on mutual TLS of the mesh, and the workload terminates none.
func (w *workload) takesNoTLS(c clientSide) bool {
	return c.tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL && c.tls != nil && w.mode == mesh.MTLSDisabled
}

// speaks returns how the client connects to the workload.
func (w *workload) speaks(a *Access) *access.TLS {
	tls, c := a.parsed.Sent.TLS, a.client
	switch {
	case a.parsed.MutualTLS || a.parsed.From == "":
		return tls
	case c.tls == nil:
		if w.plain || c.past {
			return nil
		}
		return tls
	case c.tls.GetMode() == networking.ClientTLSSettings_DISABLE:
		return nil
	case c.tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL:
		return tls
	}
	return &access.TLS{ServerName: c.tls.GetSni(), HasServerName: c.tls.GetSni() != "", ALPN: []string{"h2", "http/1.1"}}
}
