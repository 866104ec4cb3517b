package state

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/destination"
	ingressapi "github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/settings"
)

// kind has the functions that write the rows of objects of one kind.
type kind struct {
	// split writes the rows of an object.
	split func(tx *store.Txn, o *api.Object)
	// expose writes the rows that depend on the default exportTo settings of the mesh; nil if no row does.
	expose func(tx *store.Txn, o *api.Object)
	// tables are the tables that split writes to.
	tables []rows
}

// rows is a table with rows of objects.
type rows interface {
	Delete(tx *store.Txn, k api.Key)
}

// row is a table with at most one row for each object.
type row interface {
	rows
	Leaf(k api.Key) (store.ID, bool)
}

// defineKinds defines for each kind the rows that its objects are split into.
func (t *Tables) defineKinds() {
	routes, policies := of(t.splitVirtualService), of(t.splitDestinationRule)
	t.kinds = map[string]kind{
		api.KindServiceEntry: {
			of(t.splitServiceEntry), of(t.exposeServiceEntry), []rows{t.Claims, t.Services, t.Endpoints, t.Identities},
		},
		api.KindWorkloadEntry:   {of(t.splitWorkloadEntry), nil, []rows{t.Workloads, t.Registrations.Entries}},
		api.KindWorkloadGroup:   {of(t.splitWorkloadGroup), nil, []rows{t.Registrations.Groups}},
		api.KindVirtualService:  {routes, routes, []rows{t.Claims, t.VirtualServices, t.Gateways.Bindings}},
		api.KindDestinationRule: {policies, policies, []rows{t.Claims, t.DestinationRules}},
		api.KindSidecar:         {of(t.splitSidecar), nil, []rows{t.Sidecars}},
		api.KindGateway:         {of(t.Gateways.SplitGateway), nil, []rows{t.Gateways.Servers, &t.Gateways.Declared, t.Gateways.Selectors}},

		api.KindAuthorizationPolicy:   {of(t.Security.SplitAuthorization), nil, []rows{t.Security.Authorizations, t.Security.Selections}},
		api.KindRequestAuthentication: {of(t.Security.SplitAuthentication), nil, []rows{t.Security.Authentications, t.Security.Selections}},
		api.KindPeerAuthentication:    {of(t.Peers.Split), nil, []rows{t.Peers.Policies}},
		api.KindTelemetry:             {of(t.splitTelemetry), nil, []rows{t.Telemetry.Objects}},

		api.KindEnvoyFilter: {of(t.splitEnvoyFilter), nil, []rows{t.Filters.Rows, t.Filters.Orders, t.Filters.Selections, t.Filters.Conditions}},

		api.KindWasmPlugin:       {of(t.splitWasmPlugin), nil, []rows{t.Extensions.Places, t.Extensions.Contents, t.Extensions.Selections}},
		api.KindTrafficExtension: {of(t.splitTrafficExtension), nil, []rows{t.Extensions.Places, t.Extensions.Contents, t.Extensions.Selections}},
		api.KindProxyConfig:      {of(t.splitProxyConfig), nil, []rows{t.Extensions.ProxyConfigs}},

		ingressapi.Kind:      {of(t.splitIngress), nil, []rows{t.Gateways.Servers, t.Gateways.Routes}},
		ingressapi.ClassKind: {of(t.Gateways.SplitIngressClass), nil, []rows{t.Gateways.Classes}},
	}
	for _, k := range api.Kinds() {
		if t.kinds[k.Name].split == nil {
			panic("state: no function splits objects of the kind " + k.Name + " into rows: add one to defineKinds")
		}
	}
}

// of converts a function for objects with a spec of type S. The kind of an object determines the type of its spec.
func of[S proto.Message](do func(tx *store.Txn, o *api.Object, spec S)) func(*store.Txn, *api.Object) {
	return func(tx *store.Txn, o *api.Object) { do(tx, o, o.Spec.(S)) }
}

func (t *Tables) splitIngress(tx *store.Txn, o *api.Object, m *dynamicpb.Message) {
	at, _ := t.Positions.Peek(o.Key) // the object itself has none
	t.Gateways.SplitIngress(tx, o, m, at.Generation == 0)
}

func (t *Tables) splitWorkloadEntry(tx *store.Txn, o *api.Object, spec *networking.WorkloadEntry) {
	var e mesh.Endpoint
	readEndpoint(&e, spec, o.Labels)
	checked, _ := strconv.ParseBool(o.Annotations[api.HealthChecked])
	if checked && !o.Healthy {
		e.Health = mesh.Unusable
	}
	t.Workloads.Set(tx, o.Key, e)
	t.register(tx, o)
}

func (t *Tables) splitSidecar(tx *store.Txn, o *api.Object, spec *networking.Sidecar) {
	t.Sidecars.Set(tx, o.Key, t.sidecar(o, spec))
}

// exposeServiceEntry writes the claims of a ServiceEntry. None of its other rows depends on its exportTo, and on its visibility.
func (t *Tables) exposeServiceEntry(tx *store.Txn, o *api.Object, spec *networking.ServiceEntry) {
	near, _ := mesh.ParseNearness(o.Annotations[api.TrafficDistribution])
	layers := t.layers(spec.ExportTo, o.Namespace, settings.ServiceExportTo)
	n, _ := t.Kube.Namespaces.Peek(namespaceKey(t.options.ClusterID, o.Namespace))
	switch t.visibility(n) {
	case settings.Nowhere:
		layers = nil
	case settings.OwnNamespace:
		if len(layers) > 0 && layers[0] == "" {
			layers = []string{o.Namespace}
		}
		layers = slices.DeleteFunc(layers, func(l string) bool { return l != o.Namespace })
	}
	t.claimService(tx, o, ownNames(spec.Hosts), layers, near)
}

func (t *Tables) claimService(tx *store.Txn, o *api.Object, hosts, layers []string, near mesh.Nearness) {
	if len(hosts) == 0 || len(layers) == 0 {
		t.Claims.Delete(tx, o.Key)
		return
	}
	t.Claims.Set(tx, o.Key, &claim.Claims{
		Kind: claim.Service, Created: age(o), Hosts: hosts, Layers: layers, ByLocality: near != mesh.Anywhere, Near: near,
	})
}

func age(o *api.Object) int64 { return o.Created.UnixMicro() }

// layers returns the namespaces that see an object; "" means all.
func (t *Tables) layers(exportTo []string, namespace string, otherwise settings.Setting) []string {
	if len(exportTo) == 0 {
		exportTo = t.ExportTo(otherwise).Items()
	}
	var list []string
	for _, e := range exportTo {
		switch e {
		case "*":
			return []string{""}
		case ".":
			list = append(list, namespace)
		case "~", "":
		default:
			list = append(list, e)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (t *Tables) hosts(list []string, namespace string) []string {
	out := make([]string, 0, len(list))
	for _, h := range list {
		if h := mesh.FullHost(h, namespace, t.options.Domain); h != "" && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// ownNames returns the hosts of a ServiceEntry in lower case. A name without a dot stays as it is.
func ownNames(list []string) []string {
	hosts := make([]string, 0, len(list))
	for _, h := range list {
		if h = strings.ToLower(strings.TrimSuffix(h, ".")); h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

func (t *Tables) splitServiceEntry(tx *store.Txn, o *api.Object, spec *networking.ServiceEntry) {
	t.exposeServiceEntry(tx, o, spec)
	near, _ := mesh.ParseNearness(o.Annotations[api.TrafficDistribution])
	_, samePorts := o.Labels[mesh.SamePortsLabel]
	s := &mesh.Service{
		SamePorts: samePorts, Session: mesh.SessionOf(o.Labels),
		Name: o.Name, Namespace: o.Namespace, Addresses: spec.Addresses, SubjectAltNames: spec.SubjectAltNames,
		External: spec.Location == networking.ServiceEntry_MESH_EXTERNAL, Resolution: resolution(spec.Resolution), Near: near,
		Allocated: o.HostAddresses(), ByFamily: t.options.DualStack,
	}
	for _, p := range spec.Ports {
		if _, twice := s.Port(p.Number); twice || !mesh.ValidPort(p.Number) {
			continue // validation refuses it; Envoy would refuse a second cluster of the same name
		}
		protocol, _ := mesh.ParseProtocol(p.Protocol)
		s.Ports = append(s.Ports, mesh.Port{Number: p.Number, TargetPort: p.TargetPort, Name: p.Name, Protocol: protocol})
	}
	t.Services.Set(tx, o.Key, s)
	e := &Endpoints{Selector: spec.WorkloadSelector.GetLabels(), Inline: make([]mesh.Endpoint, len(spec.Endpoints))}
	was := &Endpoints{}
	if row, ok := t.Endpoints.Peek(o.Key); ok {
		was = row
	}
	for i, w := range spec.Endpoints {
		var like [2]mesh.Labels
		if i < len(was.Inline) {
			like[0] = was.Inline[i].Labels
		}
		if i > 0 {
			like[1] = e.Inline[i-1].Labels
		}
		readEndpoint(&e.Inline[i], w, nil, like[:]...)
	}
	t.Endpoints.Set(tx, o.Key, e)
	if who := identities(e); who.MeshTLS || len(who.Accounts) > 0 || len(who.Selector) > 0 {
		t.Identities.Set(tx, o.Key, who)
	} else {
		t.Identities.Delete(tx, o.Key)
	}
}

func identities(e *Endpoints) *Identities {
	who := &Identities{Selector: e.Selector}
	for _, ep := range e.Inline {
		who.MeshTLS = who.MeshTLS || ep.MeshTLS
		if n := len(who.Accounts); ep.ServiceAccount != "" && (n == 0 || who.Accounts[n-1] != ep.ServiceAccount) {
			who.Accounts = append(who.Accounts, ep.ServiceAccount)
		}
	}
	slices.Sort(who.Accounts)
	who.Accounts = slices.Compact(who.Accounts)
	return who
}

func resolution(r networking.ServiceEntry_Resolution) mesh.Resolution {
	switch r {
	case networking.ServiceEntry_STATIC:
		return mesh.Static
	case networking.ServiceEntry_DNS:
		return mesh.DNS
	case networking.ServiceEntry_DNS_ROUND_ROBIN:
		return mesh.DNSRoundRobin
	case networking.ServiceEntry_NONE:
		return mesh.Passthrough
	}
	return mesh.DynamicDNS
}

// readEndpoint fills in the endpoint of a WorkloadEntry. Labels of the object take precedence over those in the spec. likely are sets of
// labels that the endpoint may have: its previous labels, and the labels of its neighbour in a list. Building new sets would be most
// of the work in a list of thousands of endpoints, one of them changed.
func readEndpoint(e *mesh.Endpoint, w *networking.WorkloadEntry, labels map[string]string, likely ...mesh.Labels) {
	e.Address, e.Ports, e.Weight, e.ServiceAccount = w.Address, w.Ports, w.Weight, w.ServiceAccount
	all := w.Labels
	if len(labels) > 0 {
		all = make(map[string]string, len(labels)+len(w.Labels))
		maps.Copy(all, w.Labels)
		maps.Copy(all, labels)
	}
	if i := slices.IndexFunc(likely, func(set mesh.Labels) bool { return equalLabels(set, all) }); i >= 0 {
		e.Labels = likely[i]
	} else {
		e.Labels = mesh.LabelsOf(all)
	}
	e.Locality, e.Network, e.MeshTLS = mesh.ParseLocality(w.Locality), w.Network, e.ServiceAccount != ""
	if w.Locality == "" {
		e.Locality = mesh.LabelledLocality(e.Labels)
	}
	for l := range e.Labels.All() {
		switch {
		case l.Name == mesh.NetworkLabel && w.Network == "":
			e.Network = l.Value
		case l.Name == mesh.TLSModeLabel:
			e.MeshTLS = l.Value == mesh.TLSModeMesh
		case l.Name == mesh.DrainingLabel && l.Value != "":
			e.Health = mesh.Draining
		}
	}
}

// equalLabels reports whether a set has the labels of a map and no others.
func equalLabels(set mesh.Labels, labels map[string]string) bool {
	n := 0
	for l := range set.All() {
		if value, ok := labels[l.Name]; !ok || value != l.Value {
			return false
		}
		n++
	}
	return n == len(labels)
}

func (t *Tables) splitDestinationRule(tx *store.Txn, o *api.Object, spec *networking.DestinationRule) {
	host := mesh.FullHost(spec.Host, o.Namespace, t.options.Domain)
	var hosts []string
	if host != "" && len(spec.WorkloadSelector.GetMatchLabels()) == 0 {
		hosts = []string{host}
	}
	layers := t.layers(spec.ExportTo, o.Namespace, settings.PolicyExportTo)
	if len(hosts) > 0 && len(layers) > 0 {
		t.Claims.Set(tx, o.Key, &claim.Claims{Kind: claim.Policy, Created: age(o), Hosts: hosts, Layers: layers, ByLocality: destination.ByLocality(spec), ByCredential: destination.ByCredential(spec)})
	} else {
		t.Claims.Delete(tx, o.Key)
	}
	t.DestinationRules.Set(tx, o.Key, &DestinationRule{
		Object: o.Key, Created: age(o), Host: host, Selector: spec.WorkloadSelector.GetMatchLabels(),
		Audience: intern.Of(layers...), Credential: destination.ByCredential(spec), Spec: spec, Hash: o.Hash,
	})
}
