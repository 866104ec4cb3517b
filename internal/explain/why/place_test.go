package why_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

// placedMesh has objects that an answer names as a source, a Sidecar, a reason and a Problem.
const placedMesh = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example.com, other.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: all, namespace: shop}
spec: {egress: [{hosts: ["./web.example.com"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com, subset: missing}}]}]}
`

// TestPlace: all objects that an answer names get their present lines, wherever it names them.
func TestPlace(t *testing.T) {
	w := meshtest.New(t)
	w.Load(placedMesh)
	state := w.State(w.Connect(meshtest.Node(t, "sidecar~10.77.9.9~app-0.shop~shop.svc.cluster.local", "{}")))
	ask := func(name string) *reply.Answer {
		m := why.Mesh{Tables: w.Tables, Graph: w.Graph, Queries: w.Queries, Problems: w.Queries.Problems.Merged(w.Graph.Glance(), class.All{})}
		a, err := m.Ask(why.Question{Connection: "sidecar~10.77.9.9~app-0.shop~shop.svc.cluster.local", State: state, Kind: why.HostKind, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		a.Complete()
		return a
	}
	line := regexp.MustCompile(`"line":(\d+)`)
	for _, name := range []string{"web.example.com", "other.example.com"} {
		a := ask(name)
		a.Place(func(at []api.Problem) {
			for i := range at {
				if at[i].Object == (api.Key{}) || at[i].Position.Line == 0 {
					t.Errorf("%+v has no place", at[i])
				}
				at[i].Position.Line += 1000
			}
		})
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		lines := line.FindAllStringSubmatch(string(text), -1)
		if len(lines) < 3 {
			t.Errorf("the answer about %s has %d lines, which shows nothing:\n%s", name, len(lines), text)
		}
		for _, l := range lines {
			if len(l[1]) != 4 {
				t.Errorf("line %s of the answer about %s is not the present one:\n%s", l[1], name, text)
			}
		}
	}
	a := ask("web.example.com")
	a.Place(nil)
	if len(a.Sources) == 0 || a.Sources[0].Object.Line == 0 {
		t.Error("without files, objects lose their places")
	}
}
