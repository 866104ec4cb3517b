package agent

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/pilotmesh/pilot/internal/agent/config"
)

// trust makes the workload trust the roots of ProxyConfig.caCertificatesPem. It returns what takes those that the control plane adds to them;
// nil if it is not asked for any.
func trust(s *config.Settings, own *credentials, log *slog.Logger) (func([]string) error, error) {
	fixed := s.Proxy.GetCaCertificatesPem()
	if own.issued == nil {
		if len(fixed) > 0 || s.Certificates.TrustBundles {
			log.Warn("settings", "remark", "caCertificatesPem and PROXY_CONFIG_XDS_AGENT have no effect: the roots of the mesh come from files or from another program; add roots there")
		}
		return nil, nil
	}
	if len(fixed) > 0 {
		if err := own.issued.Trust(fixed); err != nil {
			return nil, fmt.Errorf("caCertificatesPem: %w", err)
		}
	}
	if !s.Certificates.TrustBundles {
		return nil, nil
	}
	return func(texts []string) error { return own.issued.Trust(slices.Concat(fixed, texts)) }, nil
}
