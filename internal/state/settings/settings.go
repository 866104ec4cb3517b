// Package settings defines the mesh-wide settings: one row for each setting of the mesh configuration that a query reads.
//
// Write replaces them by the settings of a mesh configuration. The other methods read one setting each and return its default if the mesh
// configuration does not have it. Methods without a store.Reader are only for the owner of the store.
//
// The package starts no goroutines.
package settings

import (
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/security/compliance"
)

// Settings are the mesh-wide settings.
type Settings struct {
	rows       store.Table[Setting, Value]
	domain     string
	compliance compliance.Policy
}

// New defines the table of settings in a store. domain is the suffix of cluster host names, and policy restricts the TLS of proxies.
func New(db *store.DB, domain string, policy compliance.Policy) Settings {
	return Settings{store.NewTable[Setting, Value](db, "settings", Value.equal), domain, policy}
}

// Setting names one mesh-wide setting. Each setting has its own row, so a change of it runs only the queries that read it.
type Setting uint8

// The settings.
const (
	rootNamespace Setting = iota
	outboundMode
	connectTimeout
	ServiceExportTo
	RouteExportTo
	PolicyExportTo
	routeSettings
	autoMTLS
	trustDomains
	baseline
	localityBalancing
	zoneBalancing
	meshByLocality
	unknownTLS
	keepalive
	http2Upgrade
	dnsRefresh
	httpSettings
	gatewayTopology
	detectionTimeout
	inboundLocalhost
	accessLog
	logEnvoy
	defaultLogs
	defaultTracers
	defaultMetrics
	tracing
	httpProxyPort
	serviceSettings
	meshTLS
	tlsCurves
	tlsCiphers
	certificates
	ingressMode
	ingressClass
	ingressGateway
	ingressService
	capturePorts
	inboundStatName
	outboundStatName
	inboundRetries
	connectionSettings
	serviceEntryVisibility
	secretServices
)

// Value is the value of a setting. The setting determines which of the fields it uses.
type Value struct {
	Text    string
	List    intern.List[string]
	Number  int64
	Log     AccessLog
	Message proto.Message
}

func (v Value) equal(o Value) bool {
	return v.Text == o.Text && v.List == o.List && v.Number == o.Number && v.Log == o.Log && proto.Equal(v.Message, o.Message)
}

// OutboundMode is how traffic for undeclared destinations is handled.
type OutboundMode uint8

// The outbound modes.
const (
	// AllowAny forwards it to its original destination.
	AllowAny OutboundMode = iota
	// RegistryOnly refuses it.
	RegistryOnly
	// ByName forwards HTTP requests to the address that the proxy resolves their host to, and other traffic as AllowAny does.
	ByName
)

// Outbound is how traffic for undeclared destinations is handled, and which service forwards it.
type Outbound struct {
	Mode OutboundMode
	// Host, Subset and Port name the service to which all such traffic is sent. If Host is empty, it goes to its original
	// destination.
	Host, Subset string
	Port         uint32
}

// Defaults for settings that the mesh configuration does not have.
const (
	defaultRootNamespace  = "istio-system"
	defaultConnectTimeout = 10 * time.Second
	exportToAll           = "*"
)

// RootNamespace returns the namespace of mesh-wide rules.
func (t *Settings) RootNamespace(r store.Reader) string {
	return t.text(r, rootNamespace, defaultRootNamespace)
}

// OutboundMode returns the outbound traffic policy of the mesh.
func (t *Settings) OutboundMode(r store.Reader) OutboundMode {
	v, _ := t.rows.Get(r, outboundMode)
	return OutboundMode(v.Number)
}

// ConnectTimeout returns the maximum duration of an attempt to connect to an endpoint.
func (t *Settings) ConnectTimeout(r store.Reader) time.Duration {
	if v, ok := t.rows.Get(r, connectTimeout); ok {
		return time.Duration(v.Number)
	}
	return defaultConnectTimeout
}

func (t *Settings) text(r store.Reader, s Setting, otherwise string) string {
	if v, ok := t.rows.Get(r, s); ok {
		return v.Text
	}
	return otherwise
}

// ExportTo returns the default visibility of the objects of a kind. Only the owner of the store may call it.
func (t *Settings) ExportTo(s Setting) intern.List[string] {
	if v, ok := t.rows.Peek(s); ok {
		return v.List
	}
	return intern.Of(exportToAll)
}

// Write replaces the settings. It reports whether the rows of objects must be rewritten because a default exportTo, the
// visibility of ServiceEntries or the settings of services changed.
func (t *Settings) Write(tx *store.Txn, m *meshconfig.MeshConfig) (resplit bool) {
	text := func(s Setting, v, otherwise string) {
		if v == "" {
			v = otherwise
		}
		t.rows.Set(tx, s, Value{Text: v})
	}
	exports := func(s Setting, list []string) {
		if len(list) == 0 {
			list = []string{exportToAll}
		}
		v := Value{List: intern.Of(list...)}
		resplit = resplit || v.List != t.ExportTo(s)
		t.rows.Set(tx, s, v)
	}
	text(rootNamespace, m.GetRootNamespace(), defaultRootNamespace)
	exports(ServiceExportTo, m.GetDefaultServiceExportTo())
	exports(RouteExportTo, m.GetDefaultVirtualServiceExportTo())
	exports(PolicyExportTo, m.GetDefaultDestinationRuleExportTo())
	mode := AllowAny
	if p := m.GetOutboundTrafficPolicy(); p != nil {
		switch p.GetMode() {
		case meshconfig.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY:
			mode = RegistryOnly
		case meshconfig.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS:
			mode = ByName
		}
	}
	t.rows.Set(tx, outboundMode, Value{Number: int64(mode)})
	timeout := defaultConnectTimeout
	if d := m.GetConnectTimeout(); d != nil && d.AsDuration() > 0 {
		timeout = d.AsDuration()
	}
	t.rows.Set(tx, connectTimeout, Value{Number: int64(timeout)})
	resplit = t.writeServiceSettings(tx, m) || resplit
	resplit = t.writeVisibility(tx, m) || resplit
	t.writeRouteSettings(tx, m)
	t.writePolicies(tx, m)
	t.writeConnectionSettings(tx, m)
	t.writeIngressSettings(tx, m)
	t.writeTelemetry(tx, m)
	t.writeSidecars(tx, m)
	return resplit
}
