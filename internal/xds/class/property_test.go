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

// Whatever is committed in whatever order, the published state equals the state computed from the rows alone, and Envoy accepts it.
func TestIncrementalIsCold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := meshtest.NewWith(rt, meshtest.Options{DualStack: rapid.Bool().Draw(rt, "dual stack")})
		random := meshtest.Random{T: rt}
		there := map[api.Key]bool{}
		var ids []string
		classes := map[proxy.Class]bool{}
		connect := func(i int, ns, mode string) {
			id := fmt.Sprintf("sidecar~10.1.0.%d~w-%d.%s~%s.svc.cluster.local", i%4+1, i, ns, ns)
			at := rapid.SampledFrom(meshtest.Localities()).Draw(rt, "at")
			more := rapid.SampledFrom([]string{"", ",fd00:1::1"}).Draw(rt, "more addresses")
			dns := rapid.SampledFrom([]string{"", "true"}).Draw(rt, "dns")
			w.Connect(meshtest.Node(rt, id, `{"LABELS":{"v":"1","istio-locality":"`+at+`"},"INTERCEPTION_MODE":"`+mode+`","INSTANCE_IPS":"10.1.0.`+fmt.Sprint(i%4+1)+more+`","DNS_CAPTURE":"`+dns+`"}`))
			ids = append(ids, id)
		}
		if rapid.IntRange(0, 3).Draw(rt, "proxy") == 0 {
			w.Configure("proxyHttpPort: 90")
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
				c := w.Follow(rapid.SampledFrom(ids).Draw(rt, "leaves"))
				w.Leave(c)
				delete(classes, c)
			default:
				var batch []*api.Object
				for range rapid.IntRange(1, 4).Draw(rt, "batch") {
					o := random.Object()
					there[o.Key] = true
					batch = append(batch, o)
				}
				w.Put(batch...)
			}
			for _, id := range ids {
				classes[w.Follow(id)] = true
			}
			w.Check()
			for c := range classes {
				if s := w.State(c); s != nil {
					meshtest.Validate(rt, s)
					uniqueAddresses(rt, s)
				}
			}
			if rt.Failed() {
				rt.FailNow()
			}
		}
	})
}
