package registries

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// written reads the services that are in the file itself.
type written struct{ entry Entry }

// Run implements Reader.
func (w written) Run(_ context.Context, to Listener) {
	all := Services{}
	for _, s := range w.entry.Services {
		one := &Service{HostName: s.Host}
		for i, e := range s.Endpoints {
			in := Instance{ID: fmt.Sprintf("endpoints[%d]", i), Address: e.Address, Labels: e.Labels, Locality: mesh.ParseLocality(e.Locality)}
			if e.Weight != nil {
				in.Weight = strconv.FormatFloat(*e.Weight, 'g', -1, 64)
			}
			for _, p := range s.Ports {
				in.Ports = append(in.Ports, Port{Number: p.Number, Protocol: p.Protocol, Target: e.Ports[strconv.Itoa(int(p.Number))]})
			}
			one.Instances = append(one.Instances, in)
		}
		all[s.Host] = one
	}
	to.List(all, true)
}
