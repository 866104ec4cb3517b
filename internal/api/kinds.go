package api

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/api/rules"
	"github.com/pilotmesh/pilot/internal/api/rules/kube"
)

// The API groups of the kinds.
const (
	networkingGroup = "networking.istio.io"
	securityGroup   = "security.istio.io"
	telemetryGroup  = "telemetry.istio.io"
	extensionGroup  = "extensions.istio.io"
	ingressGroup    = "networking.k8s.io"
)

// The kinds of objects that the product acts on.
const (
	KindServiceEntry    = "ServiceEntry"
	KindWorkloadEntry   = "WorkloadEntry"
	KindWorkloadGroup   = "WorkloadGroup"
	KindVirtualService  = "VirtualService"
	KindDestinationRule = "DestinationRule"
	KindSidecar         = "Sidecar"
	KindGateway         = "Gateway"
	KindEnvoyFilter     = "EnvoyFilter"
	KindProxyConfig     = "ProxyConfig"

	KindRequestAuthentication = "RequestAuthentication"
	KindAuthorizationPolicy   = "AuthorizationPolicy"
	KindPeerAuthentication    = "PeerAuthentication"

	KindTelemetry = "Telemetry"

	KindWasmPlugin       = "WasmPlugin"
	KindTrafficExtension = "TrafficExtension"
)

// Subject is the topic of the objects of a kind. Metrics count changes by subject.
type Subject uint8

// The subjects.
const (
	AboutRules Subject = iota
	AboutServices
	AboutEndpoints
)

// Kind is a kind of object that the product acts on. Kinds lists all of them. Other packages have tables by the name of a kind,
// such as the rows that objects are split into, or the checks for problems. The program does not start, or a test fails, if such a
// table has no entry for a kind.
type Kind struct {
	Name    string
	Subject Subject
	group   string
	spec    proto.Message // a nil message of the type of the specs
	// rule checks a spec of the kind.
	rule func(spec proto.Message, about rules.About) []document.Finding
}

// define returns a kind whose specs are of the type M.
func define[M proto.Message](name string, subject Subject, group string, rule func(M, rules.About) []document.Finding) Kind {
	var spec M
	return Kind{name, subject, group, spec, func(m proto.Message, about rules.About) []document.Finding {
		return rule(m.(M), about)
	}}
}

// Kinds returns the kinds of objects that the product acts on, in the order in which pages and metrics list them.
func Kinds() []Kind {
	return []Kind{
		define(KindServiceEntry, AboutServices, networkingGroup, rules.ServiceEntry),
		define(KindWorkloadEntry, AboutEndpoints, networkingGroup, rules.WorkloadEntry),
		define(KindWorkloadGroup, AboutEndpoints, networkingGroup, rules.WorkloadGroup),
		define(KindVirtualService, AboutRules, networkingGroup, rules.VirtualService),
		define(KindDestinationRule, AboutRules, networkingGroup, rules.DestinationRule),
		define(KindSidecar, AboutRules, networkingGroup, rules.Sidecar),
		define(KindGateway, AboutRules, networkingGroup, rules.Gateway),
		define(KindEnvoyFilter, AboutRules, networkingGroup, rules.EnvoyFilter),
		define(KindRequestAuthentication, AboutRules, securityGroup, rules.RequestAuthentication),
		define(KindAuthorizationPolicy, AboutRules, securityGroup, rules.AuthorizationPolicy),
		define(KindPeerAuthentication, AboutRules, securityGroup, rules.PeerAuthentication),
		define(KindTelemetry, AboutRules, telemetryGroup, rules.Telemetry),
		define(KindWasmPlugin, AboutRules, extensionGroup, rules.WasmPlugin),
		define(KindTrafficExtension, AboutRules, extensionGroup, rules.TrafficExtension),
		define(KindProxyConfig, AboutRules, networkingGroup, rules.ProxyConfig),
		{ingress.Kind, AboutRules, ingressGroup, ingress.NewSpec(), dynamic(kube.Ingress)},
		{ingress.ClassKind, AboutRules, ingressGroup, ingress.NewClass(), dynamic(kube.IngressClass)},
	}
}

// versionsOf returns the versions of a kind that API servers serve, if its group has others.
func versionsOf(group, name string) []string {
	switch {
	case group == networkingGroup && name == KindEnvoyFilter:
		return []string{"v1alpha3"}
	case group == networkingGroup && name == KindProxyConfig:
		return []string{"v1beta1"}
	}
	return nil
}

// needsSpec reports whether API servers refuse an object of a kind without a spec.
func needsSpec(kind string) bool {
	return slices.Contains([]string{KindServiceEntry, KindWorkloadEntry, KindWorkloadGroup, KindWasmPlugin, KindTrafficExtension}, kind)
}

// dynamic converts the rule of a kind whose specs have a descriptor, but no type of their own.
func dynamic(rule func(*dynamicpb.Message) []document.Finding) func(proto.Message, rules.About) []document.Finding {
	return func(m proto.Message, _ rules.About) []document.Finding {
		return rule(m.(*dynamicpb.Message))
	}
}

// Plural returns the name of the kind's resource, such as "serviceentries".
func (k Kind) Plural() string { return plural(k.Name) }

func plural(kind string) string {
	name := strings.ToLower(kind)
	if stem, ok := strings.CutSuffix(name, "y"); ok && !strings.HasSuffix(stem, "a") {
		return stem + "ies"
	}
	if strings.HasSuffix(name, "s") {
		return name + "es"
	}
	return name + "s"
}

// HasName reports whether users call the kind by this name: its own, in any case, the plural, or the short name of kubectl.
func (k Kind) HasName(name string) bool {
	short := map[string]string{KindVirtualService: "vs", KindDestinationRule: "dr", KindServiceEntry: "se", KindWorkloadEntry: "we", KindPeerAuthentication: "pa", KindRequestAuthentication: "ra", KindAuthorizationPolicy: "ap", ingress.Kind: "ing", KindGateway: "gw", KindEnvoyFilter: "ef", KindTelemetry: "telemetry", KindWasmPlugin: "wasm", KindTrafficExtension: "te", KindProxyConfig: "pc"}[k.Name]
	return strings.EqualFold(name, k.Name) || strings.EqualFold(name, k.Plural()) || short != "" && strings.EqualFold(name, short)
}

// BuiltIn reports whether every API server has the kind, without a definition, and others than the product own the status of its objects.
func (k Kind) BuiltIn() bool { return k.group == ingressGroup }

// clusterScoped reports whether objects of the kind are in no namespace.
func clusterScoped(kind string) bool { return kind == ingress.ClassKind }

// Group returns the API group of the kind.
func (k Kind) Group() string { return k.group }

// Versions returns the versions of the kind that documents may have, the preferred one first.
func (k Kind) Versions() []string {
	if own := versionsOf(k.group, k.Name); own != nil {
		return own
	}
	for _, g := range groups() {
		if g.name == k.group {
			return g.versions
		}
	}
	return nil
}

// NewSpec returns an empty spec of the kind.
func (k Kind) NewSpec() proto.Message { return k.spec.ProtoReflect().New().Interface() }

// FindKind returns the kind with a name; false if the product does not act on such a kind.
func FindKind(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// names returns the names of the kinds of one API group.
func names(group string) (list []string) {
	for _, k := range Kinds() {
		if k.group == group {
			list = append(list, k.Name)
		}
	}
	return list
}

type kindClass uint8

const (
	unknownKind kindClass = iota // a kind that does not exist in a group of Istio's: an error
	ignoredKind                  // a valid kind that the product does not act on: a warning
	foreignKind                  // a custom resource of another product's group: a warning
	ownKind
)

// kind classifies documents by their apiVersion and kind.
type kind struct {
	class  kindClass
	name   string
	field  string // for unknown kinds: the field that is wrong
	remark string // for all kinds but our own: the text of the problem
	known  *Kind  // the kind of our own; nil for others
}

// message returns a new message for the spec; nil for kinds that are not our own.
func (k kind) message() proto.Message {
	if k.known == nil {
		return nil
	}
	return k.known.spec.ProtoReflect().New().Interface()
}

// groups returns the API groups of configuration. For each group it has the kinds that the product acts on, and the others.
func groups() []group {
	return []group{
		{networkingGroup, []string{"v1", "v1beta1", "v1alpha3"},
			names(networkingGroup), nil},
		{securityGroup, []string{"v1", "v1beta1"}, names(securityGroup),
			nil},
		{ingressGroup, []string{"v1"}, names(ingressGroup), []string{"NetworkPolicy", "IPAddress", "ServiceCIDR"}},
		{telemetryGroup, []string{"v1", "v1alpha1"}, names(telemetryGroup), nil},
		{extensionGroup, []string{"v1alpha1"}, names(extensionGroup), nil},
		{"gateway.networking.k8s.io", []string{"v1", "v1beta1", "v1alpha2", "v1alpha3"}, nil,
			[]string{"GatewayClass", "Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute",
				"ReferenceGrant", "BackendTLSPolicy", "ListenerSet"}},
	}
}

type group struct {
	name     string
	versions []string
	kinds    []string
	later    []string
}

// kindOf classifies a document.
func kindOf(apiVersion, name string) kind {
	groupName, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		groupName, version = "", apiVersion
	}
	for _, g := range groups() {
		if g.name == groupName {
			return g.kindOf(version, name)
		}
	}
	for _, g := range groups() {
		if slices.Contains(g.kinds, name) && isMeant(groupName) {
			return kind{name: name, field: "apiVersion", remark: fmt.Sprintf(
				"%s is not in this group; write apiVersion: %s/%s", name, g.name, g.versions[0])}
		}
	}
	if !strings.Contains(groupName, ".") || strings.HasSuffix(groupName, ".k8s.io") {
		return kind{class: ignoredKind, name: name}
	}
	return kind{class: foreignKind, name: name}
}

// isMeant reports whether a document with one of our kinds has a misspelt group: none, or one that looks like Istio's. Other
// products have kinds with the same names in their own groups.
func isMeant(group string) bool {
	return !strings.Contains(group, ".") || strings.Contains(group, "istio")
}

func (g group) kindOf(version, name string) kind {
	known := append(slices.Clone(g.kinds), g.later...)
	versions := versionsOf(g.name, name)
	if versions == nil {
		versions = g.versions
	}
	switch {
	case !slices.Contains(known, name):
		return kind{name: name, field: "kind", remark: document.Unknown(
			fmt.Sprintf("kind %s in %s", document.Quote(name), g.name), name, known)}
	case !slices.Contains(versions, version):
		return kind{name: name, field: "apiVersion", remark: fmt.Sprintf(
			"version %s of %s is not served; write one of %s", document.Quote(version), g.name, strings.Join(versions, ", "))}
	case slices.Contains(g.later, name):
		return kind{class: ignoredKind, name: name, remark: remarkOf(name)}
	}
	own, _ := FindKind(name)
	return kind{class: ownKind, name: name, known: &own}
}

// UnsupportedKind is a kind of the mesh's configuration that the product does not act on.
type UnsupportedKind struct {
	Name, Group string
	// Plural is the name of the kind's resource.
	Plural string
	// Versions are the versions that API servers may serve, the preferred one first.
	Versions []string
	// Remark says that objects of the kind are ignored.
	Remark string
}

// UnsupportedKinds returns the kinds of custom resources of the mesh's configuration that the product does not act on.
func UnsupportedKinds() (list []UnsupportedKind) {
	for _, g := range groups() {
		if g.name == ingressGroup { // its kinds belong to Kubernetes
			continue
		}
		for _, name := range g.later {
			versions := versionsOf(g.name, name)
			if versions == nil {
				versions = g.versions
			}
			list = append(list, UnsupportedKind{name, g.name, plural(name), versions, remarkOf(name)})
		}
	}
	return list
}

// remarkOf is the text of the problem of objects of a kind that the product does not act on.
func remarkOf(kind string) string { return kind + " is not supported yet: ignored" }

// kindOfSpec returns the kind that a spec belongs to; false if the product acts on no such kind.
func kindOfSpec(spec proto.Message) (Kind, bool) {
	if spec == nil {
		return Kind{}, false
	}
	is := spec.ProtoReflect().Descriptor()
	for _, k := range Kinds() {
		if k.spec.ProtoReflect().Descriptor() == is {
			return k, true
		}
	}
	return Kind{}, false
}
