package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/loop"
)

// Exported is a service of registries as a ServiceEntry.
type Exported struct {
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Registries []string        `json:"registries"`
	Spec       json.RawMessage `json:"spec"`
	// Lost names the parts of the service that the ServiceEntry does not have.
	Lost []string `json:"lost,omitempty"`
}

// Export returns services of registries as ServiceEntries. migrates reports whether registries share the traffic of a host.
func Export(services map[api.Key]*registry.Service, migrates func(host string) bool) ([]Exported, error) {
	list := []Exported{}
	for _, e := range registry.Export(services) {
		spec, err := protojson.Marshal(e.Spec)
		if err != nil {
			return nil, fmt.Errorf("showing the ServiceEntry %s/%s: %w", e.Namespace, e.Name, err)
		}
		one := Exported{Namespace: e.Namespace, Name: e.Name, Registries: e.Registries, Spec: spec, Lost: e.Lost}
		if migrates(e.Spec.Hosts[0]) {
			one.Lost = append(one.Lost, "the shares of its migration: weights are those in the registries")
		}
		list = append(list, one)
	}
	return list, nil
}

// exportz is the page with the services of registries as ServiceEntries.
func (p *Pages) exportz(r *http.Request) (any, error) {
	wanted := r.URL.Query()["registry"]
	migrating := map[string]bool{}
	services, err := inspect(r, p, func(v *loop.View) map[api.Key]*registry.Service {
		all := map[api.Key]*registry.Service{}
		for k := range v.Tables.Registries.Services.All() {
			c, ok := v.Tables.Claims.Peek(k)
			s, ok2 := v.Tables.Services.Peek(k)
			e, ok3 := v.Tables.Endpoints.Peek(k)
			if !ok || !ok2 || !ok3 || len(wanted) > 0 && !slices.Contains(wanted, k.Cluster) {
				continue
			}
			all[k] = registry.FromRows(c.Created, c.Layers, s, e.Inline, e.Scale)
			_, migrating[k.Name] = v.Tables.Registries.Migrations.Peek(strings.ToLower(k.Name))
		}
		return all
	})
	if err != nil {
		return nil, err
	}
	list, err := Export(services, func(host string) bool { return migrating[host] })
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, "%v", err)
	}
	return list, nil
}
