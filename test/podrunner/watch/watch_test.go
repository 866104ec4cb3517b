package watch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/test/podrunner/watch"
)

func pod(name, uid, version string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

func TestMirror(t *testing.T) {
	var news []string
	m := watch.NewMirror(
		func(p *v1.Pod) { news = append(news, "changed "+p.Name+" "+string(p.UID)) },
		func(p *v1.Pod) { news = append(news, "gone "+p.Name+" "+string(p.UID)) })
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(news, want) {
			t.Errorf("%s: %q, want %q", what, news, want)
		}
		news = nil
	}
	select {
	case <-m.Synced():
		t.Error("synced before the first list")
	default:
	}
	_ = m.Replace([]any{pod("a", "1", "1"), pod("b", "2", "1")}, "")
	<-m.Synced()
	expect("first list", "changed a 1", "changed b 2")
	_ = m.Replace([]any{pod("a", "1", "1"), pod("b", "2", "2")}, "")
	expect("list again", "changed b 2")
	_ = m.Update(pod("a", "1", "3"))
	expect("update", "changed a 1")
	_ = m.Update(pod("a", "9", "4"))
	expect("another of that name", "gone a 1", "changed a 9")
	_ = m.Replace([]any{pod("a", "9", "4")}, "")
	expect("one less", "gone b 2")
	_ = m.Delete(pod("a", "9", "5"))
	_ = m.Delete(pod("a", "9", "5"))
	expect("deleted twice", "gone a 9")
}

func TestRefs(t *testing.T) {
	p := new(v1.Pod)
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {namespace: ns}
spec:
  initContainers: [{name: i, envFrom: [{configMapRef: {name: c1}}, {secretRef: {name: s1}}]}]
  containers: [{name: c, env: [{name: A, valueFrom: {configMapKeyRef: {name: c2, key: k}}}, {name: B, valueFrom: {secretKeyRef: {name: s2, key: k}}}]}]
  ephemeralContainers: [{name: e, envFrom: [{secretRef: {name: s3}}]}]
  volumes:
  - {name: a, configMap: {name: c3}}
  - {name: b, secret: {secretName: s4}}
  - {name: d, projected: {sources: [{configMap: {name: c4}}, {secret: {name: s5}}, {serviceAccountToken: {path: t}}]}}
`), p); err != nil {
		t.Fatal(err)
	}
	var names []string
	for ref := range watch.Refs(p) {
		names = append(names, fmt.Sprint(ref))
	}
	slices.Sort(names)
	want := "ConfigMap ns/c1,ConfigMap ns/c2,ConfigMap ns/c3,ConfigMap ns/c4,Secret ns/s1,Secret ns/s2,Secret ns/s3,Secret ns/s4,Secret ns/s5"
	if got := strings.Join(names, ","); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
