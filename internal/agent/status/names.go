package status

import (
	"encoding/json"
	"net/http"
	"net/netip"
)

// Names is the interface to the DNS proxy.
type Names interface {
	// Ready returns nil if the names of the mesh are known.
	Ready() error
	// Names are the names of the mesh with their addresses.
	Names() map[string][]netip.Addr
	// Metrics returns metrics in the Prometheus text format.
	Metrics() string
}

// ndsz lists the names of the mesh with their addresses, as Istio's agent does under this path.
func (s *server) ndsz(w http.ResponseWriter, _ *http.Request) {
	if s.Names == nil {
		http.Error(w, "the agent does not answer DNS queries; set ISTIO_META_DNS_CAPTURE=true", http.StatusNotFound)
		return
	}
	b, err := json.MarshalIndent(map[string]any{"names": s.Names.Names()}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(b, '\n')); err != nil {
		s.Log.Debug("writing the list of names", "error", err)
	}
}
