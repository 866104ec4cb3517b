package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotmesh/pilot/internal/security/ca"
)

// IdentityMetrics are the metrics of the certificate authority and of authentication. Their names are Istio's.
type IdentityMetrics struct {
	requests, issued, malformed, failed, refused, impersonations prometheus.Counter
}

// Identity adds the metrics. authority returns the present authority, nil if there is none.
func (m *Metrics) Identity(authority func() *ca.Authority) *IdentityMetrics {
	i := &IdentityMetrics{
		requests:       m.counter("citadel_server_csr_count", "Requests for certificates of workloads."),
		issued:         m.counter("citadel_server_success_cert_issuance_count", "Certificates of workloads that were signed."),
		malformed:      m.counter("citadel_server_csr_parsing_err_count", "Requests for certificates that cannot be granted to anybody."),
		failed:         m.counter("citadel_server_csr_sign_err_count", "Certificates that could not be signed."),
		refused:        m.counter("citadel_server_authentication_failure_count", "Calls over TLS whose caller has not shown who it is, or claims to be another one."),
		impersonations: m.counter("citadel_server_id_extraction_err_count", "Requests for certificates of another workload that were refused."),
	}
	expiry := func(name, help string, of func(*ca.Authority) time.Time) {
		m.gauge(name+"_timestamp", help+", in seconds since 1970; 0 if there is none.", func() float64 {
			if a := authority(); a != nil {
				return float64(of(a).Unix())
			}
			return 0
		})
		m.gauge(name+"_seconds", "Seconds until "+help+"; 0 if there is none.", func() float64 {
			if a := authority(); a != nil {
				return time.Until(of(a)).Seconds()
			}
			return 0
		})
	}
	expiry("citadel_server_root_cert_expiry", "the root of the mesh expires", func(a *ca.Authority) time.Time { _, root := a.Expires(); return root })
	expiry("citadel_server_cert_chain_expiry", "the certificate that signs expires", func(a *ca.Authority) time.Time { signing, _ := a.Expires(); return signing })
	return i
}

// Refused counts a refusal.
func (i *IdentityMetrics) Refused() { i.refused.Inc() }

// Outcome counts a request for a certificate by its outcome.
func (i *IdentityMetrics) Outcome(o ca.Outcome) {
	i.requests.Inc()
	switch o {
	case ca.Issued:
		i.issued.Inc()
	case ca.Malformed:
		i.malformed.Inc()
	case ca.Failed:
		i.failed.Inc()
	case ca.Forbidden:
		i.impersonations.Inc()
	case ca.Unauthenticated: // Refused counts it
	}
}
