package agent

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/pilotmesh/pilot/internal/agent/config"
)

// trust makes the workload trust the roots of ProxyConfig.caCertificatesPem. It returns a function that trusts roots of the control plane
// in addition; nil if the settings do not ask for them.
func trust(s *config.Settings, own *credentials, log *slog.Logger) (func([]string) error, error) {
	fixed := s.Proxy.GetCaCertificatesPem()
	var roots interface{ Trust(texts []string) error }
	switch {
	case own.issued != nil:
		roots = own.issued
	case own.mounted != nil:
		roots = own.mounted
	default:
		if len(fixed) > 0 || s.Certificates.TrustBundles {
			log.Warn("settings", "remark", "caCertificatesPem and PROXY_CONFIG_XDS_AGENT have no effect: another program serves the roots of the mesh (WORKLOAD_IDENTITY_SOCKET_FILE); add roots there")
		}
		return nil, nil
	}
	if len(fixed) > 0 {
		if err := roots.Trust(fixed); err != nil {
			return nil, fmt.Errorf("caCertificatesPem: %w", err)
		}
	}
	if !s.Certificates.TrustBundles {
		return nil, nil
	}
	return func(texts []string) error { return roots.Trust(slices.Concat(fixed, texts)) }, nil
}
