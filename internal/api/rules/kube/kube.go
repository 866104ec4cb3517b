// Package kube validates the kinds of Kubernetes itself that are configuration of the mesh, by the rules of the API server.
//
// The package is pure.
package kube

import (
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// Ingress checks an Ingress by the rules of the API server.
func Ingress(m *dynamicpb.Message) []document.Finding {
	return checkSpec(func(c *checker, at *document.Path) { c.kubeIngress(at, ingress.SpecOf(m)) })
}

// IngressClass checks an IngressClass.
func IngressClass(m *dynamicpb.Message) []document.Finding {
	return checkSpec(func(c *checker, at *document.Path) {
		c.rule(at.Field("controller"), controllerName(ingress.ClassOf(m).Controller))
	})
}

// checkSpec checks a spec by the rules of its kind.
func checkSpec(ofKind func(c *checker, at *document.Path)) []document.Finding {
	var c checker
	ofKind(&c, (*document.Path)(nil).Field("spec"))
	return c.Findings()
}

// checker checks one object.
type checker struct{ document.Report }

func (c *checker) fail(p *document.Path, format string, args ...any) { c.Fail(0, p, format, args...) }

// rule adds an error if a check function returned a reason.
func (c *checker) rule(p *document.Path, reason string) {
	if reason != "" {
		c.fail(p, "%s", reason)
	}
}

// maxController is the length that the API server permits for the name of a controller.
const maxController = 250

// controllerName checks the name of a controller: a domain, a slash, and a path.
func controllerName(name string) string {
	domain, path, _ := strings.Cut(name, "/")
	switch {
	case name == "":
		return "an IngressClass needs a controller; the mesh's is " + ingress.Controller
	case len(name) > maxController:
		return fmt.Sprintf("it must have at most %d characters", maxController)
	case syntax.Subdomain(domain) != "" || path == "" || strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(controllerChars, r) }):
		return fmt.Sprintf("%s must be a domain in lower case, a slash, and a path, such as %s", document.Quote(name), ingress.Controller)
	}
	return ""
}

// controllerChars are the characters of the path of a controller.
const controllerChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-._~%!$&'()*+,;=:"

func (c *checker) kubeIngress(p *document.Path, s ingress.Spec) {
	if s.DefaultBackend == nil && len(s.Rules) == 0 {
		c.fail(p, "an Ingress needs rules or a defaultBackend")
	}
	if s.IngressClassName != "" {
		c.rule(p.Field("ingressClassName"), syntax.Subdomain(s.IngressClassName))
	}
	if s.DefaultBackend != nil {
		c.ingressBackend(p.Field("defaultBackend"), s.DefaultBackend)
	}
	for i, t := range s.TLS {
		if t.SecretName != "" {
			c.rule(p.Field("tls").At(i).Field("secretName"), syntax.Subdomain(t.SecretName))
		}
		for j, host := range t.Hosts {
			c.ingressHost(p.Field("tls").At(i).Field("hosts").At(j), host)
		}
	}
	for i, r := range s.Rules {
		at := p.Field("rules").At(i)
		if r.Host != "" {
			c.ingressHost(at.Field("host"), r.Host)
		}
		if r.HTTP == nil {
			continue // all its requests go to the default backend
		}
		paths := at.Field("http").Field("paths")
		if len(r.HTTP.Paths) == 0 {
			c.fail(paths, "http needs at least one path")
		}
		for j, path := range r.HTTP.Paths {
			c.ingressPath(paths.At(j), path)
		}
	}
}

func (c *checker) ingressHost(p *document.Path, host string) {
	name := strings.TrimPrefix(host, "*.")
	_, err := netip.ParseAddr(host)
	if reason := syntax.Subdomain(name); reason != "" || host == "*" || err == nil {
		c.fail(p, "%s must be a host name in lower case, such as shop.example.com or *.example.com", document.Quote(host))
	}
}

func (c *checker) ingressPath(p *document.Path, path ingress.Path) {
	types := []string{ingress.Exact, ingress.Prefix, ingress.ImplementationSpecific}
	at := p.Field("path")
	switch path.PathType {
	case "":
		c.fail(p.Field("pathType"), "a path needs a pathType: one of %s", strings.Join(types, ", "))
	case ingress.ImplementationSpecific:
		if path.Path != "" && path.Path[0] != '/' {
			c.fail(at, "%s must begin with /", document.Quote(path.Path))
		}
	case ingress.Exact, ingress.Prefix:
		c.absolute(at, path.Path)
	default:
		c.fail(p.Field("pathType"), "%s", document.Unknown("path type", path.PathType, types))
	}
	if path.Backend == nil {
		c.fail(p.Field("backend"), "a path needs a backend: the service to which its requests go")
		return
	}
	c.ingressBackend(p.Field("backend"), path.Backend)
}

// absolute checks the path of a type that compares it with the path of a request.
func (c *checker) absolute(p *document.Path, path string) {
	if !strings.HasPrefix(path, "/") {
		c.fail(p, "%s must begin with /", document.Quote(path))
		return
	}
	for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, part) {
			c.fail(p, "%s must not contain %s", document.Quote(path), document.Quote(part))
			return
		}
	}
	if strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..") {
		c.fail(p, "%s must not end with . or ..", document.Quote(path))
	}
}

func (c *checker) ingressBackend(p *document.Path, b *ingress.Backend) {
	at := p.Field("service")
	switch {
	case b.Service == nil && b.Resource == nil:
		c.fail(p, "a backend needs a service")
		return
	case b.Service != nil && b.Resource != nil:
		c.fail(p, "a backend has either a service or a resource, not both")
		return
	case b.Resource != nil:
		if b.Resource.Kind == "" || b.Resource.Name == "" {
			c.fail(p.Field("resource"), "a resource needs a kind and a name")
		}
		return
	case b.Service.Name == "":
		c.fail(at.Field("name"), "the service needs a name")
	default:
		c.rule(at.Field("name"), syntax.Label(b.Service.Name))
	}
	port := at.Field("port")
	switch is := b.Service.Port; {
	case is == nil || is.Name == "" && is.Number == 0:
		c.fail(port, "the service needs a port: its number or its name")
	case is.Name != "" && is.Number != 0:
		c.fail(port, "a port has either a number or a name, not both")
	case is.Name == "":
		c.rule(port.Field("number"), syntax.Port(is.Number))
	default:
		c.rule(port.Field("name"), portName(is.Name))
	}
}

// maxPortName is the length that the API server permits for the name of a port.
const maxPortName = 15

// portName checks the name of a port of a Service as Ingresses may name it.
func portName(name string) string {
	letters := strings.ContainsFunc(name, func(r rune) bool { return 'a' <= r && r <= 'z' })
	if len(name) > maxPortName || !letters || syntax.Label(name) != "" || strings.Contains(name, "--") {
		return fmt.Sprintf("%s must be the name of a port: at most %d lower-case letters, digits and single dashes, with a letter", document.Quote(name), maxPortName)
	}
	return ""
}
