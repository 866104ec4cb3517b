package class_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

// wide is a service with many endpoints as a document. last is the end of the first endpoint's address.
func wide(endpoints, last int) string {
	var b strings.Builder
	b.WriteString(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wide, namespace: a}
spec:
  hosts: [wide.a.svc.cluster.local]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  location: MESH_INTERNAL
  endpoints:
`)
	for i := range endpoints {
		at := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
		if i == 0 {
			at = fmt.Sprintf("10.255.255.%d", last)
		}
		fmt.Fprintf(&b, "  - {address: %s, labels: {app: wide, version: v%d}, locality: r%d/z1}\n", at, i%2, i%3)
	}
	return b.String()
}

// BenchmarkWide measures, stage by stage, the change of one address among ten thousand endpoints of one service. A
// document may hold 4,096 endpoints at most; that stage uses as many.
func BenchmarkWide(b *testing.B) {
	const endpoints, inDocument = 10000, 4096
	texts := [2][]byte{[]byte(wide(inDocument, 1)), []byte(wide(inDocument, 2))}
	b.Run("decode", func(b *testing.B) {
		for i := range b.N {
			docs := api.Decode("wide.yaml", texts[i%2])
			if docs[0].Check(); docs[0].Object == nil {
				b.Fatal(docs[0].Problems)
			}
		}
	})
	decode := func(i int) *api.Object { return api.Decode("wide.yaml", []byte(wide(endpoints, i+1)))[0].Object }
	w := meshtest.New(b)
	w.Put(decode(0))
	objects := [2]*api.Object{decode(0), decode(1)}
	b.Run("rows", func(b *testing.B) {
		for i := range b.N {
			batch := w.Batch(objects[(i+1)%2])
			w.Graph.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, batch) })
		}
	})
	w.Connect(meshtest.Node(b, "sidecar~10.1.1.1~web-0.c~c.svc.cluster.local", ""))
	b.Run("all", func(b *testing.B) {
		for i := range b.N {
			batch := w.Batch(objects[(i+1)%2])
			w.Graph.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, batch) })
		}
	})
}
