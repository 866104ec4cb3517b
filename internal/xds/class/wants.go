package class

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/destination"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Provider answers the requests of proxies for names of one type. Its queries are defined before this package's.
type Provider struct {
	Type resource.Type
	// Find returns the answer for one proxy: the resource of a name, which the proxy knows as another name, or as the same. It must decide
	// by the identity of the proxy; no other proxy is shown the answer.
	Find func(r *query.Reader, p *proxy.Proxy, name, as string) Answer
	// PullSecret returns the credentials of registries in a Secret; nil for a provider that has none. Without any, why says the reason.
	PullSecret func(r *query.Reader, namespace, name string) (config []byte, why Answer)
}

// pullSecretsOf returns the first source of credentials of registries among providers.
func pullSecretsOf(providers []Provider) func(r *query.Reader, namespace, name string) ([]byte, Answer) {
	for _, p := range providers {
		if p.PullSecret != nil {
			return p.PullSecret
		}
	}
	return func(*query.Reader, string, string) ([]byte, Answer) {
		return nil, Answer{Reason: "the control plane has no Secrets: set --credentialsDir"}
	}
}

// Answer is what a proxy gets for a name that it requests. The zero value means that there is no such resource.
type Answer = resource.Answer

// maxUnserved bounds how many proxies that request one resource are looked at for a problem.
const maxUnserved = 60

// defineWants defines the answers to requests of proxies by name, and the problems about unserved requests.
func (q *Queries) defineWants(g *query.Graph, providers []Provider) {
	q.Answers = query.Guard(g, "answer", Answer.Equal, Answer{Denied: true}, func(r *query.Reader, k connected.WantKey) (Answer, bool) {
		_, asked := q.tables.Wants.Get(r, k)
		p, connected := q.tables.Proxies.Get(r, k.Connection)
		if !asked || !connected {
			return Answer{}, false
		}
		if resource.Type(k.Type) == resource.VirtualHost {
			return q.answerDemand(r, k.Connection, k.Name), true
		}
		for _, provider := range providers {
			if provider.Type == resource.Type(k.Type) {
				a := q.ask(r, provider, p, k)
				return a, !a.Pending
			}
		}
		return Answer{}, true
	})
	troubles := query.Each(g, "troubles",
		func(r *query.Reader, _ All) omap.Map[connected.ResourceKey, omap.Unit] {
			return q.tables.Wanted.Group(r, struct{}{})
		},
		query.Define(g, "trouble", slices.Equal[[]trouble], q.troublesOf),
		func(_ All, k connected.ResourceKey) connected.ResourceKey { return k })
	by := query.GroupBy(g, "troublesBy", troubles, func(t trouble, add func(askerTrouble, troubled)) {
		add(t.askerTrouble, troubled{t.resource, t.reason, t.object})
	})
	q.missing = query.Each(g, "missingAll",
		func(r *query.Reader, all All) omap.Map[askerTrouble, omap.Unit] { return by.Keys(r, all) },
		query.Define(g, "missing", slices.Equal[[]api.Problem], func(r *query.Reader, k askerTrouble) ([]api.Problem, bool) {
			return k.problems(by.Group(r, All{}, k)), true
		}),
		func(_ All, k askerTrouble) askerTrouble { return k })
}

// ask asks a provider for what a proxy requests. A gateway may request the certificate of a host, which a client named.
func (q *Queries) ask(r *query.Reader, provider Provider, p *proxy.Proxy, k connected.WantKey) Answer {
	c, _ := q.Class.Get(r, k.Connection)
	if provider.Type != resource.Secret || !c.OnDemand || strings.Contains(k.Name, "://") {
		return provider.Find(r, p, k.Name, k.Name)
	}
	credential, ok := q.Gateways.OnDemand(r, gateway.ServedOf(c), k.Name)
	if !ok {
		return Answer{Unexpected: true}
	}
	return provider.Find(r, p, envoy.CredentialSecret(credential), k.Name)
}

// unservedProxies are proxies that request one resource because of the same object, and have the same trouble with it.
type unservedProxies struct {
	first  connected.Want
	user   api.Key // the object that names the resource, if that is known
	answer Answer
	count  int
}

// maxReasons bounds how many different reasons why proxies do not get one resource are reported.
const maxReasons = 5

// addUnserved adds a proxy to the proxies with the same trouble.
func addUnserved(list []unservedProxies, user api.Key, row connected.Want, a Answer) []unservedProxies {
	at := slices.IndexFunc(list, func(w unservedProxies) bool {
		return w.user == user && w.answer.Denied == a.Denied && w.answer.Reason == a.Reason && (w.answer.Resource == nil) == (a.Resource == nil)
	})
	switch {
	case at >= 0:
		list[at].count++
	case len(list) < maxReasons:
		list = append(list, unservedProxies{row, user, a, 1})
	}
	return list
}

// troublesOf are the troubles that proxies have with one resource: they request it and do not get it, or reject it.
func (q *Queries) troublesOf(r *query.Reader, k connected.ResourceKey) (list []trouble, _ bool) {
	var missing, rejected []unservedProxies
	asked := 0
	for connection := range q.tables.WantedBy.Group(r, k).All() {
		if asked++; asked > maxUnserved {
			break
		}
		key := connected.WantKey{Connection: string(connection), ResourceKey: k}
		row, _ := q.tables.Wants.Get(r, key)
		switch a, known := q.Answers.Get(r, key); {
		case known && a.Unexpected:
		case known && a.Resource == nil:
			missing = addUnserved(missing, q.credentialUser(r, string(connection), k), row, a)
		case known && row.Refused != "":
			rejected = addUnserved(rejected, q.credentialUser(r, string(connection), k), row, a)
		}
	}
	for i, w := range append(missing, rejected...) {
		list = append(list, trouble{
			askerTrouble{w.first.Proxy, k.Type, i >= len(missing), w.answer.Denied}, k.Name, w.reason(resource.Type(k.Type), asked > maxUnserved), w.user,
		})
	}
	return list, len(list) > 0
}

// credentialUser returns the first Gateway that a proxy serves, or else the first DestinationRule of its namespace, that names the Secret
// of a resource; zero if there is none, or if the resource is no Secret.
func (q *Queries) credentialUser(r *query.Reader, connection string, k connected.ResourceKey) api.Key {
	name, secret := strings.CutPrefix(k.Name, envoy.SecretScheme)
	configMap := strings.HasPrefix(k.Name, destination.ConfigMapScheme)
	if resource.Type(k.Type) != resource.Secret || !secret && !configMap {
		return api.Key{}
	}
	c, _ := q.Class.Get(r, connection)
	for _, credential := range []string{name, strings.TrimSuffix(name, envoy.RootsSuffix)} {
		for user := range q.tables.Gateways.CredentialUsers.Group(r, credential).All() {
			row, _ := q.tables.Gateways.Servers.Get(r, user)
			if row != nil && c.Selectors.Has(q.Scope.SelectorOf(user.Namespace, row.Selector)) {
				return user
			}
		}
		for user := range q.tables.CredentialUsers.Group(r, credential).All() {
			if user.Namespace == c.Namespace || configMap {
				return user
			}
		}
	}
	return api.Key{}
}

// reason says which proxies have what trouble. more means that there are proxies that were not looked at.
func (w unservedProxies) reason(t resource.Type, more bool) string {
	reported, fails := strings.TrimSpace(w.first.Refused), "; what needs it fails, everything else continues"
	who, agent := "proxy "+w.first.Proxy, proxy.IsAgent(w.first.Proxy)
	if agent {
		who = "the agent of " + proxy.NameOf(w.first.Proxy)
	}
	switch {
	case more:
		who += " (others, too)"
	case w.count > 1:
		who += fmt.Sprintf(" (%d others, too)", w.count-1)
	}
	switch {
	case agent && reported != "":
		return fmt.Sprintf("%s has trouble with this %s: %s", who, t.Kind(), reported)
	case w.answer.Resource != nil:
		return fmt.Sprintf("%s rejected this %s and keeps what it had: %s", who, t.Kind(), reported)
	case w.answer.Denied && w.answer.Reason != "":
		return fmt.Sprintf("%s asks for this %s, and may not have it: %s%s", who, t.Kind(), w.answer.Reason, fails)
	case w.answer.Reason != "":
		return fmt.Sprintf("%s asks for this %s, and cannot have it: %s%s", who, t.Kind(), w.answer.Reason, fails)
	case w.answer.Denied:
		return fmt.Sprintf("%s asks for this %s, and it is not for it%s", who, t.Kind(), fails)
	case reported != "":
		return fmt.Sprintf("%s asks for this %s, and there is none: %s%s", who, t.Kind(), reported, fails)
	}
	return fmt.Sprintf("%s asks for this %s, and there is none%s", who, t.Kind(), fails)
}
