// Package gatewayrows defines the tables of gateways, and splits Gateways, Ingresses and IngressClasses into rows: servers, routes, and the VirtualServices
// that are bound to them. Rows do not change once written. The package starts no goroutines. Only the owner of the store may call the methods that write.
package gatewayrows

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/dynamicpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	ingressapi "github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Tables are the rows that gateways are made of. Each kind of object that configures gateways is split into these rows. Whether an
// object counts is decided by queries (view/gateway), because it depends on settings and on other objects.
type Tables struct {
	// Servers are the servers that gateways listen for, by object, and Declared the servers of Gateways one by one.
	Servers  store.Table[api.Key, *Servers]
	Declared Declared
	// Selectors are the labels of the gateways that serve a Gateway. Selecting lists the Gateways by the first label of their selector, and
	// Gateways without a selector under no label.
	Selectors store.Table[api.Key, mesh.Labels]
	Selecting store.Index[mesh.Label, selected.Policy]
	// Selected lists the Gateways with a selector, of all namespaces or of one.
	Selected store.Index[proxy.GatewaySelector, Selected]
	// Bindings are the VirtualServices with routes for gateways. BoundTo lists them by Gateway and by the namespace of the gateways that
	// see them, BoundHosts by these and by host, BoundFor by the labels of gateways in their rules, and BoundDelegates by their delegates.
	Bindings       store.Table[api.Key, *Binding]
	BoundTo        store.Index[Layer, api.Key]
	BoundHosts     store.Index[Host, api.Key]
	BoundFor       store.Index[mesh.Label, api.Key]
	BoundDelegates store.Index[api.Key, api.Key]
	// SecureGateways lists the Gateways with a server with TLS for a host, the oldest first.
	SecureGateways store.Index[string, selected.AgeKey]
	// CredentialUsers lists the Gateways with a server that names a credential.
	CredentialUsers store.Index[string, api.Key]
	// Routes are the routes for requests that gateways receive.
	Routes store.Table[api.Key, *Routes]
	// Classes are the IngressClasses, and DefaultClasses lists, under the empty key, the default ones.
	Classes        store.Table[api.Key, Class]
	DefaultClasses store.Index[struct{}, selected.AgeKey]
	// Admissions lists, under the empty key, the properties by which Ingresses count; Admitted the Ingresses with them, the oldest first, and Secured the ones with a certificate.
	Admissions        store.Index[struct{}, Admission]
	Admitted, Secured store.Index[Admission, selected.AgeKey]
	// Routed lists, under the empty key, the objects with routes.
	Routed store.Index[struct{}, api.Key]
	// ServersFor and RoutesFor list the Ingresses that have a server with TLS or a route for a host, the oldest first.
	ServersFor, RoutesFor store.Index[string, selected.AgeKey]
	// Hosts lists, under the empty key, the hosts for which there are routes.
	Hosts store.Index[struct{}, omap.Name]

	domain string
}

// Admission has the properties that decide whether an object counts. It is zero for an object of a kind that always counts.
type Admission struct {
	// ByClass is true for an Ingress, which counts if it is of the class of the mesh. Its gateways come from the mesh settings.
	ByClass bool
	// Annotated is true if the object has the annotation kubernetes.io/ingress.class, and Annotation is its value.
	Annotated  bool
	Annotation string
	// Class is the name of its IngressClass; empty without one.
	Class string
	// Written is true if no API server has completed the object: without a class it is of the default one.
	Written bool
}

// Compare orders by the fields.
func (a Admission) Compare(o Admission) int {
	return cmp.Or(cmp.Compare(a.Annotation, o.Annotation), cmp.Compare(a.Class, o.Class), bytes.Compare(a.AppendTo(nil), o.AppendTo(nil)))
}

// AppendTo appends an unambiguous form.
func (a Admission) AppendTo(b []byte) []byte {
	return fmt.Appendf(b, "%t %t %t %q %q", a.ByClass, a.Annotated, a.Written, a.Annotation, a.Class)
}

// Class is an IngressClass.
type Class struct {
	Created    int64
	Controller string
	// Default is true if Ingresses without a class are of this one.
	Default bool
}

// AnyLayer is the layer in which a Gateway has all its objects, whatever their namespaces. No namespace has this name.
const AnyLayer = "*"

// Layer is a Gateway, and the namespace of gateways to which objects are exported; "" for all.
type Layer struct {
	Gateway api.Key
	Layer   string
}

// Host is a host, or a pattern, of a Gateway and the namespace of gateways to which objects are exported.
type Host struct {
	Layer
	Host string
}

// Selected is a Gateway, and how many hosts it has that may get certificates on demand.
type Selected struct {
	Gateway api.Key
	Hosts   int
}

// Compare orders by Gateway.
func (c Selected) Compare(o Selected) int {
	return cmp.Or(c.Gateway.Compare(o.Gateway), cmp.Compare(c.Hosts, o.Hosts))
}

// AppendTo appends an unambiguous form.
func (c Selected) AppendTo(b []byte) []byte {
	return strconv.AppendInt(append(c.Gateway.AppendTo(b), ' '), int64(c.Hosts), 10)
}

// Binding names the Gateways to which the routes of a VirtualService belong.
type Binding struct {
	Created int64
	// Hosts are fully qualified names in lower case, each once.
	Hosts    []string
	Gateways []api.Key
	Layers   []string // the namespaces of gateways that see the object, each once; "" for all
	// Labels are the labels of gateways that the rules name.
	Labels    []mesh.Label
	Delegates []api.Key
}

// Public reports whether gateways of all namespaces see the object.
func (b *Binding) Public() bool { return slices.Contains(b.Layers, "") }

func (b *Binding) equal(o *Binding) bool {
	return b.Created == o.Created && slices.Equal(b.Hosts, o.Hosts) && slices.Equal(b.Gateways, o.Gateways) && slices.Equal(b.Layers, o.Layers) &&
		slices.Equal(b.Labels, o.Labels) && slices.Equal(b.Delegates, o.Delegates)
}

// Servers are the servers of one object.
type Servers struct {
	Created   int64
	Admission Admission
	Servers   []gateway.Server
	// Selector is the selector of a Gateway; empty for an Ingress.
	Selector mesh.Labels
	// Ignored is the field of a default backend that has no effect because there are rules; empty if there is none.
	Ignored string
}

// Routes are the routes of one object.
type Routes struct {
	Created   int64
	Admission Admission
	Routes    []gateway.Route
}

// SplitGateway writes the rows of a Gateway.
func (g *Tables) SplitGateway(tx *store.Txn, o *api.Object, spec *networking.Gateway) {
	selector := mesh.LabelsOf(spec.Selector)
	g.Selectors.Set(tx, o.Key, selector)
	servers := gateway.ServersOf(spec, o.Namespace)
	g.Servers.Set(tx, o.Key, &Servers{Created: o.Created.UnixMicro(), Servers: servers, Selector: selector})
	g.Declared.set(tx, o.Key, servers, o.Created.UnixMicro(), selector)
}

// Bind writes the row about the gateways that have the routes of a VirtualService. hosts are its fully qualified hosts, and c its claims.
func (g *Tables) Bind(tx *store.Txn, o *api.Object, spec *networking.VirtualService, hosts []string, c *claim.Claims) {
	b := &Binding{Created: c.Created, Hosts: hosts, Layers: c.Layers, Labels: c.Labels, Delegates: c.Delegates}
	for _, listed := range spec.Gateways {
		namespace, name, ok := strings.Cut(gateway.NameOf(listed, o.Namespace), "/")
		k := api.Key{Kind: api.KindGateway, Namespace: namespace, Name: name}
		if ok && !slices.Contains(b.Gateways, k) {
			b.Gateways = append(b.Gateways, k)
		}
	}
	if len(b.Gateways) == 0 || len(b.Hosts) == 0 || len(b.Layers) == 0 {
		g.Bindings.Delete(tx, o.Key)
		return
	}
	g.Bindings.Set(tx, o.Key, b)
}

// SplitIngressClass writes the row of an IngressClass.
func (g *Tables) SplitIngressClass(tx *store.Txn, o *api.Object, m *dynamicpb.Message) {
	isDefault, _ := strconv.ParseBool(o.Annotations[ingressapi.DefaultAnnotation])
	g.Classes.Set(tx, o.Key, Class{o.Created.UnixMicro(), ingressapi.ClassOf(m).Controller, isDefault})
}

// SplitIngress writes the rows of an Ingress. written is true if no API server has completed it.
func (g *Tables) SplitIngress(tx *store.Txn, o *api.Object, m *dynamicpb.Message, written bool) {
	s := ingressapi.SpecOf(m)
	a := Admission{ByClass: true, Class: s.IngressClassName, Written: written}
	a.Annotation, a.Annotated = o.Annotations[ingressapi.ClassAnnotation]
	servers := &Servers{Created: o.Created.UnixMicro(), Admission: a, Servers: gateway.IngressServers(s, o.Namespace, o.Name)}
	if s.DefaultBackend != nil && len(s.Rules) > 0 {
		servers.Ignored = "spec.defaultBackend"
	}
	g.Servers.Set(tx, o.Key, servers)
	g.Routes.Set(tx, o.Key, &Routes{o.Created.UnixMicro(), a, gateway.IngressRoutes(s, o.Namespace, g.domain)})
}

// Secures reports whether an object has a certificate for a host or pattern.
func (g *Servers) Secures(host string) bool {
	return slices.ContainsFunc(g.Servers, func(s gateway.Server) bool { return s.Credential() != "" && s.Serves(host) })
}

// Of returns the routes for a host, in the order of the object.
func (g *Routes) Of(host string) (list []gateway.Route) {
	for _, route := range g.Routes {
		if route.Host == host {
			list = append(list, route)
		}
	}
	return list
}

func (g *Servers) equal(o *Servers) bool {
	return g.Created == o.Created && g.Admission == o.Admission && g.Selector == o.Selector && g.Ignored == o.Ignored && slices.EqualFunc(g.Servers, o.Servers, gateway.Server.Equal)
}

func (g *Routes) equal(o *Routes) bool {
	return g.Created == o.Created && g.Admission == o.Admission && slices.Equal(g.Routes, o.Routes)
}

// Define defines the tables in a store. domain is the suffix of cluster host names.
func (g *Tables) Define(db *store.DB, domain string) {
	g.domain = domain
	g.Servers = store.NewTable[api.Key, *Servers](db, "gatewayServers", (*Servers).equal)
	g.Servers.SetRole("servers")
	g.Routes = store.NewTable[api.Key, *Routes](db, "gatewayRoutes", (*Routes).equal)
	g.Routes.SetRole("routes")
	g.Selectors = store.NewTable[api.Key, mesh.Labels](db, "gatewaySelectors", func(a, b mesh.Labels) bool { return a == b })
	g.Selecting = store.NewIndex(g.Selectors, "gatewaysSelecting", func(k api.Key, labels mesh.Labels, add func(mesh.Label, selected.Policy)) {
		var first mesh.Label
		for l := range labels.All() {
			first = l
			break
		}
		add(first, selected.Policy{Key: k, Labels: labels})
	})
	g.defineSelected()
	g.defineDeclared(db)
	g.defineBindings(db)
	g.defineAdmission(db)
	g.ServersFor = store.NewIndex(g.Servers, "gatewayServersFor", func(k api.Key, s *Servers, add func(string, selected.AgeKey)) {
		for _, server := range s.Servers {
			if !s.Admission.ByClass || !server.Secure() {
				continue // each Ingress has the others, for all hosts
			}
			for _, host := range server.Hosts {
				add(host.Name, selected.AgeKey{Created: s.Created, Key: k})
			}
		}
	})
	g.RoutesFor = store.NewIndex(g.Routes, "gatewayRoutesFor", func(k api.Key, s *Routes, add func(string, selected.AgeKey)) {
		for _, route := range s.Routes {
			add(route.Host, selected.AgeKey{Created: s.Created, Key: k})
		}
	})
	g.Routed = store.NewIndex(g.Routes, "gatewayRouted", func(k api.Key, _ *Routes, add func(struct{}, api.Key)) { add(struct{}{}, k) })
	g.Hosts = store.NewIndex(g.Routes, "gatewayHosts", func(_ api.Key, s *Routes, add func(struct{}, omap.Name)) {
		for _, route := range s.Routes {
			add(struct{}{}, omap.Name(route.Host))
		}
	})
}

// defineSelected defines which Gateways a selector has.
func (g *Tables) defineSelected() {
	g.Selected = store.NewIndex(g.Servers, "gatewaysSelected", func(k api.Key, row *Servers, add func(proxy.GatewaySelector, Selected)) {
		if row.Admission.ByClass {
			return
		}
		n := 0
		for _, server := range row.Servers {
			n += server.OrdinaryHosts()
		}
		add(proxy.GatewaySelector{Labels: row.Selector}, Selected{k, n})
		add(proxy.GatewaySelector{Labels: row.Selector, Namespace: k.Namespace}, Selected{k, n})
	})
}

// defineAdmission defines what decides which Ingresses count.
func (g *Tables) defineAdmission(db *store.DB) {
	g.Classes = store.NewTable[api.Key, Class](db, "ingressClasses", func(a, b Class) bool { return a == b })
	g.DefaultClasses = store.NewIndex(g.Classes, "defaultIngressClasses", func(k api.Key, c Class, add func(struct{}, selected.AgeKey)) {
		if c.Default {
			add(struct{}{}, selected.AgeKey{Created: c.Created, Key: k})
		}
	})
	list := func(name string, of func(*Servers) bool) store.Index[Admission, selected.AgeKey] {
		return store.NewIndex(g.Servers, name, func(k api.Key, s *Servers, add func(Admission, selected.AgeKey)) {
			if s.Admission.ByClass && of(s) {
				add(s.Admission, selected.AgeKey{Created: s.Created, Key: k})
			}
		})
	}
	g.Admitted = list("ingressesAdmitted", func(*Servers) bool { return true })
	g.Secured = list("ingressesSecured", func(s *Servers) bool {
		return slices.ContainsFunc(s.Servers, func(s gateway.Server) bool { return s.Credential() != "" })
	})
	g.Admissions = store.NewIndex(g.Servers, "ingressAdmissions", func(_ api.Key, s *Servers, add func(struct{}, Admission)) {
		if s.Admission.ByClass {
			add(struct{}{}, s.Admission)
		}
	})
}

func (g *Tables) defineBindings(db *store.DB) {
	g.Bindings = store.NewTable[api.Key, *Binding](db, "gatewayBindings", (*Binding).equal)
	g.Bindings.SetRole("routes")
	g.BoundTo = store.NewIndex(g.Bindings, "boundToGateway", func(k api.Key, b *Binding, add func(Layer, api.Key)) {
		for _, gw := range b.Gateways {
			for _, layer := range append([]string{AnyLayer}, b.Layers...) {
				add(Layer{gw, layer}, k)
			}
		}
	})
	g.BoundHosts = store.NewIndex(g.Bindings, "boundToHost", func(k api.Key, b *Binding, add func(Host, api.Key)) {
		for _, gw := range b.Gateways {
			for _, layer := range b.Layers {
				for _, host := range b.Hosts {
					add(Host{Layer{gw, layer}, host}, k)
				}
			}
		}
	})
	g.BoundFor = store.NewIndex(g.Bindings, "boundForLabel", func(k api.Key, b *Binding, add func(mesh.Label, api.Key)) {
		for _, l := range b.Labels {
			add(l, k)
		}
	})
	g.BoundDelegates = store.NewIndex(g.Bindings, "boundDelegates", func(k api.Key, b *Binding, add func(api.Key, api.Key)) {
		for _, delegate := range b.Delegates {
			add(delegate, k)
		}
	})
}
