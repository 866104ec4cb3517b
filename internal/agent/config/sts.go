package config

import (
	"github.com/pilotmesh/pilot/internal/agent/sts"
)

// STS are the settings of the token exchange for programs of the workload.
type STS struct {
	// Port is its port on loopback; 0 for none (--stsPort).
	Port uint16
	// Endpoint is the URL of the token service to which it passes requests (STS_TOKEN_ENDPOINT), and Roots the file with the roots that
	// vouch for that service; empty for the roots of the system (STS_ROOT_CA).
	Endpoint, Roots string
}

// loadSTS reads the settings of the token exchange.
func (s *Settings) loadSTS(errs *problems) {
	env := func(name string) string { return s.env.get(name, s.Proxy.GetProxyMetadata()[name]) }
	s.STS = STS{Port: uint16(port("--stsPort", s.flags.stsPort, errs)), Endpoint: env("STS_TOKEN_ENDPOINT"), Roots: env("STS_ROOT_CA")}
	switch {
	case s.STS.Port == 0 && s.STS.Endpoint != "":
		s.warn("STS_TOKEN_ENDPOINT has no effect: no port is set for the token exchange (--stsPort)")
	case s.STS.Port == 0:
	case s.STS.Endpoint == "":
		s.STS.Port = 0
		s.warn("--stsPort has no effect: set STS_TOKEN_ENDPOINT to the URL of the token service, such as https://sts.example.com/token")
	default:
		if err := sts.CheckEndpoint(s.STS.Endpoint); err != nil {
			errs.add("STS_TOKEN_ENDPOINT", "%w", err)
		}
	}
}
