package config

import (
	"strconv"

	"github.com/pilotmesh/pilot/internal/agent/probe"
)

// Application is what the status server asks of the application.
type Application struct {
	// Probes are the probes that the injector has redirected to the agent (ISTIO_KUBE_APP_PROBERS).
	Probes probe.Probes
	// Address is the host that probes call: the workload's first address, or localhost
	// (REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION).
	Address string
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
	if len(a.Probes) > 0 && s.Proxy.GetStatusPort() == 0 {
		s.warn("ISTIO_KUBE_APP_PROBERS has no effect: there is no status server (--statusPort)")
	}
}
