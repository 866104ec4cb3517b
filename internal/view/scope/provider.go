package scope

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state/provider"
)

// Authorizer is the service of an extension provider that decides about requests, by its host and port.
type Authorizer struct {
	Host string
	Port uint32
}

// Authorizer returns the service of a provider as the proxies of a set see it. If they cannot reach it, trouble says why.
func (q *Queries) Authorizer(r *query.Reader, s Set, p *meshconfig.MeshConfig_ExtensionProvider) (a Authorizer, trouble string) {
	service, port := provider.AuthorizerService(p)
	return q.Backend(r, s, service, port)
}

// Backend returns the service of a provider, which is written as host or namespace/host, as the proxies of a set see it. If they cannot
// reach it, trouble says why.
func (q *Queries) Backend(r *query.Reader, s Set, service string, port uint32) (a Authorizer, trouble string) {
	namespace, host, _ := provider.SplitService(service)
	return q.destination(r, s, namespace, host, port)
}

// SecretService returns the service that serves the Secret of a credentialName, as the proxies of a set see it. named is false if the name is
// not of an extension provider: then the control plane serves the Secret. If the proxies cannot reach the service, trouble says why.
func (q *Queries) SecretService(r *query.Reader, s Set, credential string) (a Authorizer, named bool, trouble string) {
	name, named := strings.CutPrefix(credential, SecretServiceScheme)
	if !named {
		return a, false, ""
	}
	p := q.tables.SecretService(r, name)
	if p == nil {
		return a, true, fmt.Sprintf("extensionProviders has no provider with sds.name %q", name)
	}
	a, trouble = q.Backend(r, s, p.GetService(), p.GetPort())
	return a, true, trouble
}

// SecretServiceScheme begins a credentialName that names an extension provider.
const SecretServiceScheme = "sds://"

// KeyServer returns the service behind the address of a key set as the proxies of a set see it. If they cannot reach it, trouble says why.
func (q *Queries) KeyServer(r *query.Reader, s Set, address string) (a Authorizer, trouble string) {
	u, err := url.Parse(address)
	if err != nil {
		return a, "its address cannot be read"
	}
	port := uint32(httpPort)
	if u.Scheme == "https" {
		port = httpsPort
	}
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return a, "the port of its address cannot be read"
		}
		port = uint32(n)
	}
	return q.destination(r, s, "", u.Hostname(), port)
}

// Ports of addresses that name none.
const httpPort, httpsPort = 80, 443

// destination finds a service. An empty namespace means any namespace.
func (q *Queries) destination(r *query.Reader, s Set, namespace, host string, port uint32) (a Authorizer, trouble string) {
	a = Authorizer{Host: strings.ToLower(host), Port: port}
	found, ok := q.services.Service.Get(r, q.View(r, HostInSet{Host: a.Host, Set: s}))
	switch {
	case !ok || !s.Overlay() && !q.Hosts(r, s).Has(omap.Name(a.Host)):
		return a, fmt.Sprintf("there is no service %q that the workload sees", a.Host)
	case namespace != "" && found.Namespace != namespace:
		return a, fmt.Sprintf("the service %q belongs to namespace %q, not to %q", a.Host, found.Namespace, namespace)
	}
	if _, ok := found.Port(a.Port); !ok {
		return a, fmt.Sprintf("the service %q has no port %d", a.Host, a.Port)
	}
	return a, ""
}
