package state

import (
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/store"
)

// Setting names one mesh-wide setting. Each is a row of its own, so that a change runs only what reads it.
type Setting uint8

// The settings in use.
const (
	rootNamespace Setting = iota
	outboundMode
	connectTimeout
	serviceExportTo
	routeExportTo
	policyExportTo
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
	detectionTimeout
	inboundLocalhost
	accessLog
	logEnvoy
	httpProxyPort
)

// Value is what a setting says; which field counts depends on the setting.
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

// OutboundMode is what happens to traffic for a destination nobody declared.
type OutboundMode uint8

// The outbound modes.
const (
	// AllowAny passes unknown traffic through.
	AllowAny OutboundMode = iota
	// RegistryOnly refuses it.
	RegistryOnly
	// ByName passes unknown traffic through, HTTP to where the request's host resolves to.
	ByName
)

// Outbound is likewise what happens, and by which way.
type Outbound struct {
	Mode OutboundMode
	// Host, Subset and Port are the service that all that passes goes to; an empty Host: where the client was going.
	Host, Subset string
	Port         uint32
}

// Where the mesh configuration does not say anything.
const (
	defaultRootNamespace  = "istio-system"
	defaultConnectTimeout = 10 * time.Second
	exportToAll           = "*"
)

// RootNamespace is where mesh-wide rules live.
func (t *Tables) RootNamespace(r store.Reader) string {
	return t.text(r, rootNamespace, defaultRootNamespace)
}

// OutboundMode is the mesh's outbound traffic policy.
func (t *Tables) OutboundMode(r store.Reader) OutboundMode {
	v, _ := t.Settings.Get(r, outboundMode)
	return OutboundMode(v.Number)
}

// ConnectTimeout bounds a connection attempt to an endpoint.
func (t *Tables) ConnectTimeout(r store.Reader) time.Duration {
	if v, ok := t.Settings.Get(r, connectTimeout); ok {
		return time.Duration(v.Number)
	}
	return defaultConnectTimeout
}

func (t *Tables) text(r store.Reader, s Setting, otherwise string) string {
	if v, ok := t.Settings.Get(r, s); ok {
		return v.Text
	}
	return otherwise
}

// exportTo is the default visibility of a kind, for the writer.
func (t *Tables) exportTo(s Setting) intern.List[string] {
	if v, ok := t.Settings.Peek(s); ok {
		return v.List
	}
	return intern.Of(exportToAll)
}

// writeSettings replaces the settings. It reports whether the rows of objects must be written anew.
func (t *Tables) writeSettings(tx *store.Txn, m *meshconfig.MeshConfig) (resplit bool) {
	text := func(s Setting, v, otherwise string) {
		if v == "" {
			v = otherwise
		}
		t.Settings.Set(tx, s, Value{Text: v})
	}
	exports := func(s Setting, list []string) {
		if len(list) == 0 {
			list = []string{exportToAll}
		}
		v := Value{List: intern.Of(list...)}
		resplit = resplit || v.List != t.exportTo(s)
		t.Settings.Set(tx, s, v)
	}
	text(rootNamespace, m.GetRootNamespace(), defaultRootNamespace)
	exports(serviceExportTo, m.GetDefaultServiceExportTo())
	exports(routeExportTo, m.GetDefaultVirtualServiceExportTo())
	exports(policyExportTo, m.GetDefaultDestinationRuleExportTo())
	mode := AllowAny
	if p := m.GetOutboundTrafficPolicy(); p != nil {
		switch p.GetMode() {
		case meshconfig.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY:
			mode = RegistryOnly
		case meshconfig.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS:
			mode = ByName
		}
	}
	t.Settings.Set(tx, outboundMode, Value{Number: int64(mode)})
	timeout := defaultConnectTimeout
	if d := m.GetConnectTimeout(); d != nil && d.AsDuration() > 0 {
		timeout = d.AsDuration()
	}
	t.Settings.Set(tx, connectTimeout, Value{Number: int64(timeout)})
	t.writeRouteSettings(tx, m)
	t.writePolicies(tx, m)
	t.writeConnectionSettings(tx, m)
	return resplit
}
