package api

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/settings"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// defaultMesh is the default mesh configuration. The user's file is merged over it field by field.
const defaultMesh = `
proxyListenPort: 15001
proxyInboundListenPort: 15006
connectTimeout: 10s
protocolDetectionTimeout: 0s
dnsRefreshRate: 60s
ingressClass: istio
ingressControllerMode: STRICT
ingressService: istio-ingressgateway
enableTracing: true
enableAutoMtls: true
enablePrometheusMerge: true
trustDomain: cluster.local
rootNamespace: istio-system
outboundTrafficPolicy: {mode: ALLOW_ANY}
inboundTrafficPolicy: {mode: PASSTHROUGH}
localityLbSetting: {enabled: true}
defaultServiceExportTo: ["*"]
defaultVirtualServiceExportTo: ["*"]
defaultDestinationRuleExportTo: ["*"]
extensionProviders:
- {name: prometheus, prometheus: {}}
- {name: stackdriver, stackdriver: {}}
- {name: envoy, envoyFileAccessLog: {path: /dev/stdout}}
defaultConfig:
  configPath: ./etc/istio/proxy
  binaryPath: /usr/local/bin/envoy
  discoveryAddress: istiod.istio-system.svc:15012
  controlPlaneAuthPolicy: MUTUAL_TLS
  drainDuration: 45s
  terminationDrainDuration: 5s
  proxyAdminPort: 15000
  statusPort: 15020
  statNameLength: 189
`

const defaultServiceCluster = "istio-proxy"

// DefaultMesh returns the default mesh configuration.
func DefaultMesh() *meshconfig.MeshConfig {
	m, problems := DecodeMesh("defaults", nil)
	if m == nil {
		panic(fmt.Sprintf("the built-in mesh configuration is broken: %v", problems))
	}
	return m
}

// DecodeMesh reads a MeshConfig file and merges it over the defaults. If one of the Problems is an Error, the result is nil.
// Unknown fields are Warnings, because a running mesh must not stop for a field of another version.
func DecodeMesh(file string, data []byte) (*meshconfig.MeshConfig, []Problem) {
	return DecodeMeshOver(file, data, nil)
}

// DecodeMeshOver reads a MeshConfig file and merges it over a shared one, which it merges over the defaults first. DecodeMesh must
// accept the shared one.
func DecodeMeshOver(file string, data, shared []byte) (m *meshconfig.MeshConfig, found []Problem) {
	defer contain(func(reason string) { m, found = nil, aboutMesh(file, reason) })
	var r document.Report
	m = decodeMesh(&r, data, shared)
	found = problems(Key{Kind: kindMesh}, file, r.Findings())
	if r.Failed() {
		return nil, found
	}
	return m, found
}

func aboutMesh(file, reason string) []Problem {
	return []Problem{{Object: Key{Kind: kindMesh}, Position: Position{File: file}, Severity: Error, Code: "internal-error", Reason: reason}}
}

func decodeMesh(r *document.Report, data, shared []byte) *meshconfig.MeshConfig {
	return mergeMesh(r, onlyDocument(r, data), onlyDocument(r, shared))
}

// mergeMesh merges the settings of a user over shared ones, and these over the defaults.
func mergeMesh(r *document.Report, user, shared *document.Value) *meshconfig.MeshConfig {
	base := overlay(onlyDocument(r, []byte(defaultMesh)), shared)
	if r.Failed() || !r.Expect(nil, user, document.Mapping) {
		return nil
	}
	m := new(meshconfig.MeshConfig)
	r.Add(document.Read(m, overlay(base, user), nil, document.Options{Lenient: true, JSON: true}))
	if r.Failed() {
		return nil
	}
	if m.DefaultConfig.ClusterName == nil {
		m.DefaultConfig.ClusterName = &meshconfig.ProxyConfig_ServiceCluster{ServiceCluster: defaultServiceCluster}
	}
	findings := settings.Mesh(m)
	for i := range findings {
		findings[i].Line = user.LineOf(findings[i].Field)
	}
	r.Add(findings)
	if syntax.CheckAccessLogFormat(m) != "" {
		m.AccessLogFormat = ""
	}
	return m
}

// LogEnvoy returns the minor version of the oldest supported Envoy 1 that accepts the access log format of a mesh configuration.
func LogEnvoy(m *meshconfig.MeshConfig) uint32 {
	minor, _ := syntax.EnvoyFor(m.GetAccessLogFormat())
	for _, p := range m.GetExtensionProviders() {
		for _, format := range syntax.LogFormats(p) {
			needs, _ := syntax.EnvoyFor(format)
			minor = max(minor, needs)
		}
	}
	return minor
}

// OldestEnvoy is the minor version of the oldest supported Envoy 1.
const OldestEnvoy = syntax.OldestEnvoy

// CheckLogFormat returns why a format of access logs cannot be used, or else the minor version of the oldest supported Envoy 1 that accepts it.
func CheckLogFormat(format string) (reason string, minor uint32) {
	if reason = syntax.LogFormat(format); reason != "" {
		return reason, 0
	}
	minor, _ = syntax.EnvoyFor(format)
	return "", minor
}

// FieldFormats returns all formats in an object of access logs, one per line.
func FieldFormats(fields *structpb.Struct) string { return syntax.FieldFormats(fields) }

// TagExpression returns the expression for the tag of a metric as Envoy evaluates it.
func TagExpression(text string) string { return syntax.TagExpression(text) }

// CheckExpression returns why Envoy cannot evaluate an expression in CEL; empty if it can.
func CheckExpression(text string) string { return syntax.EnvoyExpression(text) }

// onlyDocument parses a file of at most one document. For a file without documents it returns an empty mapping.
func onlyDocument(r *document.Report, data []byte) *document.Value {
	empty := &document.Value{Kind: document.Mapping, Line: 1}
	docs := document.Split(data)
	switch len(docs) {
	case 0:
		return empty
	case 1:
	default:
		r.Fail(docs[1].Before+1, nil, "a mesh configuration is one document; remove the others")
		return empty
	}
	v, err := docs[0].Parse()
	switch e, ok := errors.AsType[*document.SyntaxError](err); {
	case ok:
		r.Fail(e.Line, nil, "%s", e.Reason)
	case err != nil:
		r.Fail(1, nil, "%v", err)
	case v != nil:
		return v
	}
	return empty
}

// overlay merges the settings of a user over the defaults, field by field. It also merges defaultConfig and its proxyMetadata
// field by field, and extensionProviders by name.
func overlay(base, user *document.Value) *document.Value {
	out := &document.Value{Kind: document.Mapping, Line: user.Line}
	for _, m := range user.Members {
		if m.Value.Kind == document.Null {
			continue // the same as leaving it out
		}
		if b := base.Find(document.LowerCamel(m.Key)); b != nil {
			switch {
			case b.Key == "defaultConfig" && m.Value.Kind == document.Mapping, b.Key == "proxyMetadata" && m.Value.Kind == document.Mapping:
				m.Value = overlay(b.Value, m.Value)
			case b.Key == "extensionProviders" && m.Value.Kind == document.List:
				m.Value = overlayNamed(b.Value, m.Value)
			}
		}
		out.Members = append(out.Members, m)
	}
	for _, b := range base.Members {
		if out.Find(b.Key) == nil {
			out.Members = append(out.Members, b)
		}
	}
	return out
}

// overlayNamed appends to the user's list the defaults whose names are not in it. It appends them, so that indexes in problems
// match the file.
func overlayNamed(base, user *document.Value) *document.Value {
	out := &document.Value{Kind: document.List, Line: user.Line, Items: slices.Clip(user.Items)}
	named := map[string]bool{}
	for _, item := range user.Items {
		named[item.Get("name").Text()] = true
	}
	for _, item := range base.Items {
		if !named[item.Get("name").Text()] {
			out.Items = append(out.Items, item)
		}
	}
	return out
}

// Curves returns the named curves for TLS that Envoy supports, each once. Envoy refuses configuration with other curves.
func Curves(names []string) []string { return onlyKnown(names, syntax.IsCurve) }

// Ciphers returns the named cipher suites for TLS 1.2 that Envoy supports, each once. Envoy refuses configuration with other suites.
func Ciphers(names []string) []string { return onlyKnown(names, syntax.IsCipher) }

func onlyKnown(names []string, is func(string) bool) (list []string) {
	for _, name := range names {
		if is(name) && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
