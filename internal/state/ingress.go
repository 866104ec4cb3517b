package state

import (
	"cmp"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/dynamicpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	ingressapi "github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/store"
)

// IngressMode tells which Ingresses count.
type IngressMode uint8

// The modes. Strict is the default.
const (
	// IngressStrict: those that name the class of the mesh.
	IngressStrict IngressMode = iota
	// IngressDefault: also those that name no class.
	IngressDefault
	// IngressOff: none.
	IngressOff
)

// The ports of the servers of an Ingress, and the defaults of the settings.
const (
	ingressHTTP            = 80
	ingressHTTPS           = 443
	defaultIngressClass    = "istio"
	defaultIngressSelector = "ingressgateway"
)

// IngressMode returns which Ingresses count.
func (t *Tables) IngressMode(r store.Reader) IngressMode {
	v, _ := t.Settings.Get(r, ingressMode)
	return IngressMode(v.Number)
}

// IngressClass returns the value of the annotation kubernetes.io/ingress.class by which Ingresses count.
func (t *Tables) IngressClass(r store.Reader) string { return t.text(r, ingressClass, defaultIngressClass) }

// IngressSelector returns the value of the label "istio" of the gateways that serve Ingresses.
func (t *Tables) IngressSelector(r store.Reader) string {
	return t.text(r, ingressSelector, defaultIngressSelector)
}

func (t *Tables) writeIngressSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
	mode := IngressStrict
	switch m.GetIngressControllerMode() {
	case meshconfig.MeshConfig_OFF:
		mode = IngressOff
	case meshconfig.MeshConfig_DEFAULT:
		mode = IngressDefault
	case meshconfig.MeshConfig_STRICT, meshconfig.MeshConfig_UNSPECIFIED:
	}
	t.Settings.Set(tx, ingressMode, Value{Number: int64(mode)})
	t.Settings.Set(tx, ingressClass, Value{Text: cmp.Or(m.GetIngressClass(), defaultIngressClass)})
	t.Settings.Set(tx, ingressSelector, Value{Text: cmp.Or(m.GetIngressSelector(), defaultIngressSelector)})
}

func (t *Tables) splitIngressClass(tx *store.Txn, o *api.Object, m *dynamicpb.Message) {
	t.Gateways.Classes.Set(tx, o.Key, ingressapi.ClassOf(m).Controller)
}

func (t *Tables) splitIngress(tx *store.Txn, o *api.Object, m *dynamicpb.Message) {
	s := ingressapi.SpecOf(m)
	a := Admission{Class: s.IngressClassName}
	a.Annotation, a.Annotated = o.Annotations[api.IngressClassAnnotation]
	t.Gateways.Servers.Set(tx, o.Key, &GatewayServers{Created: age(o), Admission: a, Servers: ingressServers(s)})
	routes := &GatewayRoutes{Created: age(o), Admission: a}
	add := func(host string, match PathMatch, path, field string, b *ingressapi.Backend) {
		routes.Routes = append(routes.Routes, GatewayRoute{cmp.Or(strings.ToLower(host), AnyHost), match, path, field, t.ingressBackend(b, o.Namespace)})
	}
	for i, rule := range s.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			match, path := ingressPath(p)
			add(rule.Host, match, path, fmt.Sprintf("spec.rules[%d].http.paths[%d]", i, j), p.Backend)
		}
	}
	if s.DefaultBackend != nil {
		add(AnyHost, AnyPath, "", "spec.defaultBackend", s.DefaultBackend)
	}
	t.Gateways.Routes.Set(tx, o.Key, routes)
}

// ingressServers returns one server for HTTP, and one for each certificate.
func ingressServers(s ingressapi.Spec) []GatewayServer {
	list := []GatewayServer{{Port: ingressHTTP, Hosts: []string{AnyHost}}}
	for i, t := range s.TLS {
		hosts := make([]string, 0, max(1, len(t.Hosts)))
		for _, host := range t.Hosts {
			hosts = append(hosts, strings.ToLower(host))
		}
		if len(hosts) == 0 {
			hosts = append(hosts, AnyHost)
		}
		list = append(list, GatewayServer{
			Port: ingressHTTPS, Field: fmt.Sprintf("spec.tls[%d]", i), Hosts: hosts, TLS: true, Credential: t.SecretName,
		})
	}
	return list
}

// ingressPath returns what a path matches. A path whose type is left to the implementation is exact, unless it ends with ".*" or "/*".
func ingressPath(p ingressapi.Path) (PathMatch, string) {
	segments := func(path string) (PathMatch, string) {
		if path = strings.TrimRight(path, "/"); path == "" {
			return AnyPath, ""
		}
		return PathSegments, path
	}
	switch p.PathType {
	case ingressapi.Exact:
		return ExactPath, p.Path
	case ingressapi.Prefix:
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

func (t *Tables) ingressBackend(b *ingressapi.Backend, namespace string) GatewayBackend {
	if b.Service == nil {
		return GatewayBackend{}
	}
	return GatewayBackend{mesh.FullHost(b.Service.Name, namespace, t.options.Domain), b.Service.Port.Number, b.Service.Port.Name}
}
