package problem

import (
	"cmp"
	"fmt"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// checkNetworks finds the host names of gateways into networks that cannot be resolved. A name that nothing has looked up yet has no
// problem: where there are only files, nothing looks names up.
func (q *Queries) checkNetworks(r *query.Reader, _ service.All) (set state.Problems, ok bool) {
	for _, name := range q.services.GatewayNames(r) {
		is, known := q.tables.Networks.Resolved.Get(r, name.Host)
		if !known || is.Failure == "" {
			continue
		}
		outcome := "nothing is sent through this gateway"
		if n := len(is.Addresses.Items()); n > 0 {
			outcome = fmt.Sprintf("the addresses of the last good answer stay in use (%d)", n)
		}
		p := api.Problem{
			Code: "network-gateway-unresolved", Severity: api.Warning, Object: cmp.Or(name.Object, api.Key{Kind: "MeshNetworks"}), Field: name.Field,
			Reason: fmt.Sprintf("the host name %q of a gateway cannot be resolved: %s; %s; correct the name, or make the DNS of the control plane resolve it", name.Host, is.Failure, outcome),
		}
		set = omap.With(set, omap.Put(omap.Name(p.OutputName()), p))
	}
	return set, true
}
