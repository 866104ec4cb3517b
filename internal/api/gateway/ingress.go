package gateway

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// The ports of the servers of an Ingress.
const (
	httpPort  = 80
	httpsPort = 443
)

// IngressServers returns the servers of an Ingress: one for HTTP, and one for each certificate.
func IngressServers(s ingress.Spec) []Server {
	list := []Server{{Port: httpPort, Protocol: mesh.HTTP, Hosts: []Host{{Name: AnyHost}}}}
	for i, t := range s.TLS {
		hosts := make([]Host, 0, max(1, len(t.Hosts)))
		for _, host := range t.Hosts {
			hosts = append(hosts, Host{Name: strings.ToLower(host)})
		}
		if len(hosts) == 0 {
			hosts = append(hosts, Host{Name: AnyHost})
		}
		list = append(list, Server{
			Port: httpsPort, Protocol: mesh.HTTPS, Field: fmt.Sprintf("spec.tls[%d]", i), Hosts: hosts,
			TLS: ingressTLS(t.SecretName),
		})
	}
	return list
}

// ingressTLS shows the certificate of a Secret.
func ingressTLS(secret string) *TLS {
	if secret == "" {
		return &TLS{}
	}
	return &TLS{Credentials: []string{secret}}
}

// IngressRoutes returns the routes of an Ingress, in its order. A default backend counts only in an Ingress without rules; there it gets
// all requests for which no other object has a route. domain is the suffix of the names of services.
func IngressRoutes(s ingress.Spec, namespace, domain string) (list []Route) {
	add := func(host string, match PathMatch, path, field, backend string, b *ingress.Backend) {
		list = append(list, Route{cmp.Or(strings.ToLower(host), AnyHost), match, path, field, ingressBackend(b, backend, namespace, domain)})
	}
	for i, rule := range s.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			match, path := ingressPath(p)
			field := fmt.Sprintf("spec.rules[%d].http.paths[%d]", i, j)
			add(rule.Host, match, path, field, field+".backend", p.Backend)
		}
	}
	if s.DefaultBackend != nil && len(s.Rules) == 0 {
		add(AnyHost, AnyPath, "", "spec.defaultBackend", "spec.defaultBackend", s.DefaultBackend)
	}
	return list
}

// ingressPath returns what a path matches. A path whose type is left to the implementation is exact, unless it ends with ".*" or "/*".
func ingressPath(p ingress.Path) (PathMatch, string) {
	segments := func(path string) (PathMatch, string) {
		if path = strings.TrimRight(path, "/"); path == "" {
			return AnyPath, ""
		}
		return PathSegments, path
	}
	switch p.PathType {
	case ingress.Exact:
		return ExactPath, p.Path
	case ingress.Prefix:
		return segments(p.Path)
	}
	if p.Path == "" {
		return AnyPath, ""
	}
	for _, end := range []string{".*", "/*"} {
		if path, ok := strings.CutSuffix(p.Path, end); ok {
			return segments(path)
		}
	}
	return ExactPath, p.Path
}

func ingressBackend(b *ingress.Backend, field, namespace, domain string) Backend {
	if b.Service == nil {
		return Backend{Field: field}
	}
	return Backend{mesh.FullHost(b.Service.Name, namespace, domain), field, b.Service.Port.Number, b.Service.Port.Name}
}
