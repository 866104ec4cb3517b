package class_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
)

// Whatever is committed in whatever order, what was published is what the rows alone give, and Envoy can take it.
func TestIncrementalIsCold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := meshtest.New(rt)
		random := meshtest.Random{T: rt}
		there := map[api.Key]bool{}
		var classes []proxy.Class
		connect := func(i int, ns, mode string) {
			id := fmt.Sprintf("sidecar~10.1.0.%d~w-%d.%s~%s.svc.cluster.local", i%4+1, i, ns, ns)
			classes = append(classes, w.Connect(meshtest.Node(rt, id, `{"LABELS":{"v":"1"},"INTERCEPTION_MODE":"`+mode+`"}`)))
		}
		connect(0, "a", "REDIRECT")
		connect(1, "b", "NONE")
		for i := range rapid.IntRange(2, 9).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				for _, k := range slices.SortedFunc(maps.Keys(there), api.Key.Compare) {
					w.Delete(k)
					delete(there, k)
					break
				}
			case 1:
				connect(i+2, rapid.SampledFrom(meshtest.Namespaces()).Draw(rt, "of"), "REDIRECT")
			case 2:
				w.Leave(rapid.SampledFrom(classes).Draw(rt, "leaves"))
			default:
				var batch []*api.Object
				for range rapid.IntRange(1, 4).Draw(rt, "batch") {
					o := random.Object()
					there[o.Key] = true
					batch = append(batch, o)
				}
				w.Put(batch...)
			}
			w.Check()
			for _, c := range classes {
				if s := w.State(c); s != nil {
					meshtest.Validate(rt, s)
				}
			}
			if rt.Failed() {
				rt.FailNow()
			}
		}
	})
}
