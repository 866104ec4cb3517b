package status

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/secret"
)

// secretz lists the secrets that Envoy has requested, with their states and problems.
func (s *server) secretz(w http.ResponseWriter, _ *http.Request) {
	b, err := json.MarshalIndent(map[string]any{"secrets": s.Secrets.Secrets()}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(b, '\n')); err != nil {
		s.Log.Debug("writing the list of secrets", "error", err)
	}
}

// secretMetrics returns the agent's metrics in the Prometheus text format. The metric of the expiry has Istio's name, which dashboards use.
func secretMetrics(list []secret.Status, now time.Time) string {
	count := map[secret.State]int{}
	refused := 0
	for _, s := range list {
		count[s.State]++
		if s.Refusal != "" {
			refused++
		}
	}
	var out strings.Builder
	out.WriteString("# HELP pilot_agent_secrets Certificates and CA certificates that Envoy has requested from the agent, by state.\n# TYPE pilot_agent_secrets gauge\n")
	for _, state := range secret.States() {
		fmt.Fprintf(&out, "pilot_agent_secrets{state=%q} %d\n", string(state), count[state])
	}
	out.WriteString("# HELP pilot_agent_secrets_refused Certificates and CA certificates from the agent that Envoy has rejected.\n# TYPE pilot_agent_secrets_refused gauge\n")
	fmt.Fprintf(&out, "pilot_agent_secrets_refused %d\n", refused)
	out.WriteString("# HELP istio_agent_cert_expiry_seconds How long the certificate or CA certificate is still valid, in seconds; negative once it has expired.\n# TYPE istio_agent_cert_expiry_seconds gauge\n")
	for _, s := range list {
		if s.Expires != nil {
			fmt.Fprintf(&out, "istio_agent_cert_expiry_seconds{resource_name=%q} %.0f\n", s.Name, s.Expires.Sub(now).Seconds())
		}
	}
	return out.String()
}
