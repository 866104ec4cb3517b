package claim

import (
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestHad: a client that claims everything in the present version has the target itself. A claim in another version, or under a name that
// the target does not have, is unknown.
func TestHad(t *testing.T) {
	piece := resource.PieceOf("a:80", &routev3.VirtualHost{Name: "a:80", Domains: []string{"a"}})
	target := resource.NewRoute("80", &routev3.RouteConfiguration{Name: "80"}, omap.With(omap.Map[omap.Name, *resource.Piece]{}, omap.Put(omap.Name("a:80"), piece)))
	head, host := target.Head().Version(), piece.Host("80").Version()
	for _, c := range []struct {
		head    string
		claims  map[string]string
		all     bool
		unknown []string
	}{
		{head, map[string]string{"80/a:80": host}, true, nil},
		{"h0", map[string]string{"80/a:80": host}, false, nil},
		{head, map[string]string{"80/a:80": "0"}, false, []string{"a:80"}},
		{head, map[string]string{"80/a:80": host, "80/b": "1"}, false, []string{"b"}},
		{head, map[string]string{"81/a:80": host}, false, nil},
	} {
		raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: c.claims})
		if err != nil {
			t.Fatal(err)
		}
		q, err := request.Scan(request.Delta, raw)
		if err != nil {
			t.Fatal(err)
		}
		got := had(target, []byte(c.head), all(q)["80"])
		if (got == target) != c.all {
			t.Errorf("%v: has all is %v", c.claims, got == target)
		}
		for _, name := range c.unknown {
			if p, ok := got.Pieces().Get(omap.Name(name)); !ok || p.HasContent() {
				t.Errorf("%v: %s counts as known", c.claims, name)
			}
		}
	}
}
