// Package provider reads the extension providers of a mesh configuration: their uses, and the services that they send to. It is pure: it has no
// goroutines and no state.
package provider

import (
	"slices"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
)

// AuthorizerService returns the service of a provider that decides about requests, as it is written: host, or namespace/host.
func AuthorizerService(p *meshconfig.MeshConfig_ExtensionProvider) (service string, port uint32) {
	if o := p.GetEnvoyExtAuthzGrpc(); o != nil {
		return o.Service, o.Port
	}
	return p.GetEnvoyExtAuthzHttp().GetService(), p.GetEnvoyExtAuthzHttp().GetPort()
}

// Headers returns the headers that a provider for traces adds to its requests.
func Headers(p *meshconfig.MeshConfig_ExtensionProvider) []*meshconfig.MeshConfig_ExtensionProvider_HttpHeader {
	o := p.GetOpentelemetry()
	return slices.Concat(p.GetZipkin().GetHeaders(), o.GetHttp().GetHeaders(), o.GetGrpc().GetInitialMetadata())
}

// Use is a use of a provider.
type Use uint8

// The uses of providers.
const (
	ForLogs Use = iota + 1
	ForTraces
	ForMetrics
)

// UseOf returns the use of a provider; false if it makes no logs, traces or metrics that an Envoy can make.
func UseOf(p *meshconfig.MeshConfig_ExtensionProvider) (use Use, ok bool) {
	switch p.GetProvider().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog, *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpAls,
		*meshconfig.MeshConfig_ExtensionProvider_EnvoyTcpAls, *meshconfig.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		return ForLogs, true
	case *meshconfig.MeshConfig_ExtensionProvider_Zipkin, *meshconfig.MeshConfig_ExtensionProvider_Datadog,
		*meshconfig.MeshConfig_ExtensionProvider_Skywalking, *meshconfig.MeshConfig_ExtensionProvider_Opentelemetry:
		return ForTraces, true
	case *meshconfig.MeshConfig_ExtensionProvider_Prometheus:
		return ForMetrics, true
	}
	return 0, false
}

// TelemetryService returns the service that a provider for logs or traces sends to, as it is written: host, or namespace/host.
func TelemetryService(p *meshconfig.MeshConfig_ExtensionProvider) (service string, port uint32) {
	type backend interface {
		GetService() string
		GetPort() uint32
	}
	var b backend
	switch p := p.GetProvider().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		b = p.EnvoyHttpAls
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		b = p.EnvoyTcpAls
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		b = p.EnvoyOtelAls
	case *meshconfig.MeshConfig_ExtensionProvider_Zipkin:
		b = p.Zipkin
	case *meshconfig.MeshConfig_ExtensionProvider_Datadog:
		b = p.Datadog
	case *meshconfig.MeshConfig_ExtensionProvider_Skywalking:
		b = p.Skywalking
	case *meshconfig.MeshConfig_ExtensionProvider_Opentelemetry:
		b = p.Opentelemetry
	default:
		return "", 0
	}
	return b.GetService(), b.GetPort()
}

// SplitService splits the service of a provider into its namespace and its host in lower case. named is false if it names no namespace.
func SplitService(service string) (namespace, host string, named bool) {
	if ns, name, ok := strings.Cut(service, "/"); ok {
		return ns, strings.ToLower(name), true
	}
	return "", strings.ToLower(service), false
}
