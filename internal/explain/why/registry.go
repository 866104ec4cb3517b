package why

import (
	"net"
	"strconv"

	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// maxOrigins bounds how many endpoints are listed with their registries.
const maxOrigins = 50

// origins lists the registries of endpoints; none if no registry outside Kubernetes has the host.
func (i *inquiry) origins(host string, list []mesh.PortEndpoint) (out []reply.Origin) {
	used := map[string]bool{}
	address := func(e mesh.PortEndpoint) string { return net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port))) }
	for _, e := range i.Queries.Services.Share(i.r, host, list) {
		used[address(e)] = e.Dialable()
	}
	for _, e := range list {
		if e.Source != "" && len(out) < maxOrigins {
			out = append(out, reply.Origin{Address: address(e), Registry: e.Source, Unused: !used[address(e)]})
		}
	}
	return out
}
