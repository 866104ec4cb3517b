package status

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/pilotmesh/pilot/internal/agent/secret"
)

// secretz lists the secrets that Envoy has requested, with their states and problems.
func (s *server) secretz(w http.ResponseWriter, _ *http.Request) {
	b, err := json.MarshalIndent(map[string]any{"secrets": s.secrets.Secrets()}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(b, '\n')); err != nil {
		s.log.Debug("writing the list of secrets", "error", err)
	}
}

// secretMetrics returns the agent's metrics in the Prometheus text format.
func secretMetrics(list []secret.Status) string {
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
	return out.String()
}
