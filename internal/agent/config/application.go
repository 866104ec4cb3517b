package config

import (
	"cmp"
	"strconv"

	"github.com/pilotmesh/pilot/internal/agent/health"
	"github.com/pilotmesh/pilot/internal/agent/probe"
	"github.com/pilotmesh/pilot/internal/agent/scrape"
)

// Application are the settings for the requests that the status server sends to the application.
type Application struct {
	// Probes are the probes that the injector has redirected to the agent (ISTIO_KUBE_APP_PROBERS).
	Probes probe.Probes
	// Address is the host that probes call: the workload's first address, or localhost
	// (REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION).
	Address string
	// HTTP2 offers HTTP/2 in probes by HTTPS, as the kubelet does (ISTIO_ENABLE_HTTP2_PROBING), and KeepAlive keeps the connections of probes
	// by HTTP for later ones (ENABLE_PROBE_KEEPALIVE_CONNECTIONS).
	HTTP2, KeepAlive bool
	// Readiness is the probe whose result is reported to the control plane (readinessProbe).
	Readiness health.Probe
	// Targets are the ports and paths of the application's metrics (ISTIO_PROMETHEUS_ANNOTATIONS).
	Targets []scrape.Target
}

// loadApplication reads the variables that describe the application.
func (s *Settings) loadApplication(errs *problems) {
	env := func(name string) string { return s.env.get(name, s.Proxy.GetProxyMetadata()[name]) }
	a := &s.Application
	if text := env("ISTIO_KUBE_APP_PROBERS"); text != "" {
		probes, remarks, err := probe.Parse(text, s.Addresses)
		if err != nil {
			errs.add("ISTIO_KUBE_APP_PROBERS", "%w", err)
		}
		a.Probes = probes
		for _, r := range remarks {
			s.warn("ISTIO_KUBE_APP_PROBERS: %s", r)
		}
	}
	if len(s.Addresses) > 0 {
		a.Address = s.Addresses[0]
	}
	const legacy = "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION"
	if text := env(legacy); text != "" {
		local, err := strconv.ParseBool(text)
		if err != nil {
			errs.add(legacy, "%q is neither true nor false", text)
		}
		if local {
			a.Address = "localhost"
		}
	}
	a.HTTP2 = s.boolean("ISTIO_ENABLE_HTTP2_PROBING", true, errs)
	a.KeepAlive = s.boolean("ENABLE_PROBE_KEEPALIVE_CONNECTIONS", false, errs)
	s.loadReadiness(errs)
	if text := env("ISTIO_PROMETHEUS_ANNOTATIONS"); text != "" {
		targets, remarks, err := scrape.Parse(text, s.reservedPorts())
		if err != nil {
			errs.add("ISTIO_PROMETHEUS_ANNOTATIONS", "%w", err)
		}
		a.Targets = targets
		for _, r := range remarks {
			s.warn("ISTIO_PROMETHEUS_ANNOTATIONS: %s", r)
		}
	}
	if len(a.Probes) > 0 && s.Proxy.GetStatusPort() == 0 {
		s.warn("ISTIO_KUBE_APP_PROBERS has no effect: there is no status server (--statusPort)")
	}
}

// loadReadiness reads the probe of the WorkloadGroup.
func (s *Settings) loadReadiness(errs *problems) {
	wanted := s.Proxy.GetReadinessProbe()
	if wanted == nil {
		return
	}
	var err error
	if s.Application.Readiness, err = health.Parse(wanted, cmp.Or(s.Application.Address, "localhost")); err != nil {
		errs.add("readinessProbe", "%w", err)
	}
	if s.text(metaGroup, "") == "" {
		s.warn("readinessProbe: its result is reported without effect, because the workload belongs to no WorkloadGroup (%s%s)", metaPrefix, metaGroup)
	}
}

// reservedPorts are ports of the proxy that the application cannot use, with the purpose of each.
func (s *Settings) reservedPorts() map[uint16]string {
	ports := map[uint16]string{
		15000: "Envoy's admin interface", 15001: "outbound traffic", 15004: "the agent's debug server", 15006: "inbound traffic",
		15008: "tunnels", 15020: "the agent's status server", 15021: "Envoy's listener for probes", 15053: "the DNS proxy",
		15090: "Envoy's listener for scrapes",
	}
	ports[uint16(s.Proxy.GetProxyAdminPort())] = ports[15000]
	ports[uint16(s.Proxy.GetStatusPort())] = ports[15020]
	ports[uint16(s.HealthPort)] = ports[15021]
	ports[uint16(s.MetricsPort)] = ports[15090]
	return ports
}
