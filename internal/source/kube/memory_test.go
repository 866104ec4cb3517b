package kube

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podLimit is how many bytes the source may keep of a pod: its value, its name and its place in the table.
const podLimit = 320

// TestMemoryOfPods measures the memory that is kept for pods as the API server sends them: each pod has its own copies of all texts.
func TestMemoryOfPods(t *testing.T) {
	const pods, deployments, nodes = 50_000, 500, 1000
	example := read[core.Pod](t, `
metadata: {namespace: shop, labels: {}, annotations: {a: some text}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, controller: true}]}
spec: {serviceAccountName: web, containers: [{name: main, image: "registry.example.com/web:v1", ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`)
	c := newConverter()
	x := &table{what: "pods", rows: map[name]content{}, merge: mergeValues}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range pods {
		example.Name, example.UID = fmt.Sprintf("web-%d-7d4b9c8f6d-%05d", i%deployments, i), types.UID(fmt.Sprint("uid", i))
		example.Spec.NodeName = fmt.Sprintf("node-%d.example.com", i%nodes)
		example.OwnerReferences[0].Name = fmt.Sprintf("web-%d-7d4b9c8f6d", i%deployments)
		example.Labels = map[string]string{"app": fmt.Sprint("web-", i%deployments), "pod-template-hash": "7d4b9c8f6d", "version": "v1"}
		example.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		example.Status.PodIPs = []core.PodIP{{IP: example.Status.PodIP}}
		data, err := example.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		sent := new(core.Pod)
		if err := sent.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		x.set(name{c.Texts.Of(sent.Namespace), sent.Name}, some(c.Pod(sent)))
	}
	if len(x.rows) != pods {
		t.Fatalf("%d pods", len(x.rows))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / pods
	t.Logf("%.0f bytes for each pod", each)
	if each > podLimit {
		t.Errorf("%.0f bytes for each pod, the limit is %d", each, podLimit)
	}
	began := time.Now()
	if changes := x.replace(nil, began, time.Second); len(changes) > 0 {
		t.Errorf("%d pods are removed at once", len(changes))
	}
	runtime.KeepAlive(x)
}
