// Package ingresses answers which hosts gateways serve because of Ingresses of Kubernetes, which routes they have, and why other Ingresses do not
// count. The answers are made of the queries that make the configuration of gateways. It starts no goroutines.
package ingresses

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/view/gateway"
)

// maxListed bounds how many hosts, other Ingresses and gateways an answer lists, because the loop waits for the answer.
const maxListed = 500

// Answer lists the hosts that gateways serve because of Ingresses: one host or all.
type Answer struct {
	Version  int            `json:"version"`
	Revision store.Revision `json:"revision"`
	// Asked is the host that was asked about; empty for all.
	Asked string `json:"asked,omitempty"`
	// Mode is ingressControllerMode of the mesh settings, and Class the class that Ingresses name by their annotation.
	Mode  string `json:"mode"`
	Class string `json:"class"`
	// Connected are connected gateways that have the label of Hosts.Gateway.
	Connected []string `json:"connected_gateways,omitempty"`
	// Hosts are sorted by name. If one was asked about, it is the one host or pattern whose routes count for it.
	Hosts []Host `json:"hosts"`
	// More is the number of hosts that are not listed.
	More int `json:"more,omitempty"`
	// Uncounted are the Ingresses that do not count.
	Uncounted []Uncounted `json:"uncounted,omitempty"`
	// Similar are hosts that resemble the one that was asked about, if there is nothing for it.
	Similar []string `json:"similar,omitempty"`

	// names yields all hosts, for Complete.
	names func(yield func(string) bool)
}

// Host is a host, or a pattern, and the servers for it.
type Host struct {
	Host string `json:"host"`
	// Gateway is the label of the gateways that serve it.
	Gateway string   `json:"gateway"`
	Servers []Server `json:"servers"`
	// Routes are in the order in which they are tried.
	Routes []Route `json:"routes"`
}

// Server is a port at which a host is served.
type Server struct {
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol"`
	// Secret has the certificate. It is looked for in the namespace of the gateway. For is the host or pattern that it is for.
	Secret string    `json:"secret,omitempty"`
	For    string    `json:"for,omitempty"`
	Object reply.Ref `json:"object"`
	Field  string    `json:"field,omitempty"`
	// Unused says why the server is not used, and Trouble why requests fail there; empty if nothing is wrong.
	Unused  string `json:"unused,omitempty"`
	Trouble string `json:"trouble,omitempty"`
}

// Route leads requests for a path to a backend.
type Route struct {
	// Match is exact or prefix (by whole segments), and Path the path that it is compared with.
	Match string `json:"match"`
	Path  string `json:"path"`
	// Backend is the host and port of a service; empty if the object names something else.
	Backend string `json:"backend,omitempty"`
	// Target is the host behind the backend, if that is only another name.
	Target string    `json:"target,omitempty"`
	Object reply.Ref `json:"object"`
	Field  string    `json:"field"`
	// Trouble says why requests fail, and Unused why the route is not used; empty if nothing is wrong.
	Trouble string `json:"trouble,omitempty"`
	Unused  string `json:"unused,omitempty"`
}

// Uncounted is an Ingress that does not count.
type Uncounted struct {
	Object reply.Ref `json:"object"`
	Reason string    `json:"reason"`
}

// Ask returns what gateways serve for a host, or for all hosts if it is empty. It must be called by the owner of the graph,
// between commits.
func Ask(m why.Mesh, host string) *Answer {
	r := m.Graph.Glance()
	settings := m.Tables.Ingress(r)
	host = strings.ToLower(strings.TrimSpace(host))
	a := &Answer{
		Version: reply.Version, Revision: m.Graph.Revision(), Asked: host, Mode: settings.Mode.String(), Class: settings.Class, Hosts: []Host{},
	}
	all := m.Tables.Gateways.Hosts.Group(r, struct{}{})
	a.names = func(yield func(string) bool) {
		for name := range all.All() {
			if string(name) != host && !yield(string(name)) {
				return
			}
		}
	}
	label := "istio=" + settings.Gateway
	if host != "" {
		for name := range mesh.NarrowestFirst(host) {
			if h, ok := m.Queries.Gateways.Host(r, name); ok {
				a.Hosts = append(a.Hosts, hostOf(m, r, h, label))
				break
			}
		}
	} else {
		for name := range a.names {
			h, ok := m.Queries.Gateways.Host(r, name)
			switch {
			case !ok:
			case len(a.Hosts) == maxListed:
				a.More++
			default:
				a.Hosts = append(a.Hosts, hostOf(m, r, h, label))
			}
		}
	}
	a.Connected = gatewaysWith(m, settings.Gateway)
	a.Uncounted = uncounted(m, r, settings, host)
	return a
}

// gatewaysWith lists the connected gateways with a value of the label "istio".
func gatewaysWith(m why.Mesh, value string) (list []string) {
	for connection := range m.Tables.RoutersWith.Peek(mesh.Label{Name: "istio", Value: value}).All() {
		if p, ok := m.Tables.Proxies.Peek(string(connection)); ok && len(list) < maxListed {
			list = append(list, p.Name+"."+p.Namespace)
		}
	}
	slices.Sort(list)
	return list
}

func hostOf(m why.Mesh, r *query.Reader, h *gateway.Host, label string) Host {
	out := Host{Host: h.Name, Gateway: label, Servers: []Server{}, Routes: []Route{}}
	for _, s := range m.Queries.Gateways.Servers(r, h) {
		one := Server{Port: s.Port, Protocol: "HTTP", Object: m.Ref(s.Object), Field: s.Field}
		if s.Secure() {
			one.Protocol, one.Secret, one.For = "HTTPS", s.Credential(), s.Host
		}
		if s.Winner.Name != "" {
			one.Unused = fmt.Sprintf("%s goes first and has another certificate for %s", s.Winner, s.Host)
		} else if s.Secure() && !m.Queries.Gateways.Routed(r, h, s.Host) {
			one.Trouble = fmt.Sprintf("no Ingress with rules for %s names a Secret for %s: requests get 404", h.Name, s.Host)
		}
		out.Servers = append(out.Servers, one)
	}
	for _, rule := range h.Rules {
		one := Route{
			Match: "prefix", Path: cmp.Or(rule.Path, "/"), Object: m.Ref(rule.Object), Field: rule.Field, Trouble: rule.Trouble,
		}
		if rule.Match == gateways.ExactPath {
			one.Match = "exact"
		}
		if rule.Target != rule.Backend.Host {
			one.Target = rule.Target
		}
		switch {
		case rule.Port != 0:
			one.Backend = fmt.Sprintf("%s:%d", rule.Backend.Host, rule.Port)
		case rule.Backend.Host != "":
			one.Backend = rule.Backend.Host + ":" + rule.Backend.PortName
		}
		switch {
		case rule.Winner.Name != "":
			one.Unused, one.Trouble = fmt.Sprintf("%s has the same path and goes first", rule.Winner), ""
		case rule.LeftOut():
			one.Unused, one.Trouble = rule.Trouble, ""
		}
		out.Routes = append(out.Routes, one)
	}
	return out
}

// uncounted lists the Ingresses that do not count; if host is set, only the Ingresses that have it.
func uncounted(m why.Mesh, r *query.Reader, settings gateways.IngressSettings, host string) (list []Uncounted) {
	var keys []api.Key
	for k, row := range m.Tables.Gateways.Routes.All() {
		covers := func(route gateways.Route) bool { return mesh.Covers(route.Host, host) }
		if host == "" || slices.ContainsFunc(row.Routes, covers) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, api.Key.Compare)
	for _, k := range keys {
		row, ok := m.Tables.Gateways.Routes.Peek(k)
		if !ok || len(list) == maxListed {
			continue
		}
		if reason := whyNot(m, r, row.Admission, settings); reason != "" {
			list = append(list, Uncounted{m.Ref(k), reason})
		}
	}
	return list
}

// whyNot says why an object does not count; empty if it does.
func whyNot(m why.Mesh, r *query.Reader, a gatewayrows.Admission, settings gateways.IngressSettings) string {
	switch m.Queries.Gateways.Standing(r, a) {
	case gateway.Off:
		return "Ingresses are switched off by ingressControllerMode in the mesh settings"
	case gateway.Unclaimed:
		return fmt.Sprintf("it names no class; set spec.ingressClassName to a class with the controller %s", ingress.Controller)
	case gateway.ClassMissing:
		return fmt.Sprintf("there is no IngressClass %q", a.Class)
	case gateway.Foreign:
		if a.Annotated {
			return fmt.Sprintf("its annotation %s is %q, and the class of the mesh is %q", ingress.ClassAnnotation, a.Annotation, settings.Class)
		}
		if a.Class == "" {
			return fmt.Sprintf("it names no class, and the default IngressClass is not of the controller %s", ingress.Controller)
		}
		class, _ := m.Tables.Gateways.Classes.Get(r, gateway.ClassKey(a.Class))
		return fmt.Sprintf("its IngressClass %q is of the controller %q, and not of %s", a.Class, class.Controller, ingress.Controller)
	case gateway.Counts:
	}
	return ""
}

// Complete adds what requires looking through lists. It may be called once, on any goroutine.
func (a *Answer) Complete() {
	if a.Asked != "" && len(a.Hosts) == 0 && a.names != nil {
		a.Similar = reply.Similar(a.Asked, []func(func(string) bool){a.names})
	}
	a.names = nil
}
