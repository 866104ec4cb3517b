package file_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/source/file"
)

const west = "west"

func serviceOf(name string, port int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {selector: {app: %s}, ports: [{name: http, port: %d}]}\n", name, name, port)
}

func podOf(name, app, address string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\nspec: {containers: []}\nstatus: {phase: Running, podIP: %s}\n", name, app, address)
}

func deploymentOf(name string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s}\nspec: {template: {metadata: {labels: {app: %s}}}}\n", name, name)
}

const (
	role   = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\n"
	config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
)

// kubeKey is the key of an object of Kubernetes in the default namespace.
func kubeKey(kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: "default", Name: name, Cluster: west}
}

// port reports whether a Service has this port.
func (w *world) port(name string, port uint32) func() bool {
	return func() bool {
		s, ok := w.values[kubeKey(kube.KindService, name)].(*kube.Service)
		return ok && s.Ports[0].Number == port
	}
}

// TestKubernetes: Services, pods, and workloads as pods without an address come with the ID of the cluster. An edit is one event, a broken
// document keeps its object, and other kinds have one remark in all.
func TestKubernetes(t *testing.T) {
	pods := podOf("a-1", "a", "192.0.2.1") + "---\n" + deploymentOf("a") + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: n, labels: {topology.istio.io/network: east}}\n"
	w := openWith(t, file.Options{ClusterID: west}, map[string]string{
		"a.yaml": serviceOf("a", 80) + "---\n" + serviceOf("b", 80), "pods.yaml": pods, "roles.yaml": role + "---\n" + config, "more/role.yaml": role,
	})
	if n := w.values[api.Key{Kind: kube.KindNamespace, Name: "n", Cluster: west}]; n == nil || n.(*kube.Namespace).Network != "east" {
		t.Errorf("namespace %+v", n)
	}
	one, template := w.values[kubeKey(kube.KindPod, "a-1")], w.values[kubeKey(kube.KindPod, "Deployment/a")]
	if len(w.values) != 5 || one == nil || template == nil || one.(*kube.Pod).Address != "192.0.2.1" || template.(*kube.Pod).Address != "" {
		t.Fatalf("values %v", w.values)
	}
	if len(w.problems) != 1 || w.problems[0].String() != w.dir+": info: has objects of kinds that Pilot does not read: ConfigMap (1), Role (2)" {
		t.Errorf("problems %v", w.problems)
	}
	write(t, w.path("a.yaml"), serviceOf("a", 81)+"---\n"+serviceOf("b", 80))
	w.until("a is edited", w.port("a", 81))
	if len(w.last.Events) != 1 || w.last.Events[0].Position != (api.Position{File: w.path("a.yaml"), Line: 1}) {
		t.Errorf("events %+v", w.last.Events)
	}
	write(t, w.path("a.yaml"), strings.Replace(serviceOf("a", 82), "port: 82", "port: x", 1)+"---\n"+serviceOf("b", 83))
	w.until("b is edited", w.port("b", 83))
	if !w.port("a", 81)() || !w.problem("a.yaml:1: error: Service default/a: the object cannot be read")() {
		t.Errorf("a has changed, or has no problem: %v", w.problems)
	}
	write(t, w.path("a.yaml"), serviceOf("b", 83))
	w.until("a is removed", func() bool { return w.values[kubeKey(kube.KindService, "a")] == nil })
	must(t, os.Remove(w.path("roles.yaml")))
	w.until("one role is left", w.problem("does not read: Role (1)"))
	must(t, os.Remove(w.path("more/role.yaml")))
	w.until("all is read", w.healthy)
}

// TestKubernetesTwice: the first document of an object counts. Another one is a warning if it differs, and none if it is a workload.
func TestKubernetesTwice(t *testing.T) {
	w := openWith(t, file.Options{ClusterID: west}, map[string]string{
		"a.yaml": serviceOf("a", 80) + "---\n" + serviceOf("b", 80) + "---\n" + deploymentOf("a"),
		"b.yaml": serviceOf("a", 81) + "---\n" + serviceOf("b", 80) + "---\n" + strings.Replace(deploymentOf("a"), "app: a", "app: b", 1),
	})
	if !w.port("a", 80)() || len(w.problems) != 1 || !w.problem("b.yaml:1: warning: Service default/a in cluster west: is also defined at "+w.path("a.yaml:1"))() {
		t.Errorf("problems %v", w.problems)
	}
	must(t, os.Remove(w.path("a.yaml")))
	w.until("the other one counts", w.port("a", 81))
}

// TestKubernetesBesideACluster: where a cluster is read, its objects count, and the files add none.
func TestKubernetesBesideACluster(t *testing.T) {
	w := openWith(t, file.Options{}, map[string]string{"a.yaml": serviceOf("a", 80) + "---\n" + entries("b")})
	if len(w.values) != 0 || !w.has("b")() || len(w.problems) != 1 || !w.problem("info: has objects of kinds that are not read from files beside a cluster: Service (1)")() {
		t.Errorf("values %v, problems %v", w.values, w.problems)
	}
}

// TestNoObjects: a file without objects is no mistake, unless it had some, which stay in force then.
func TestNoObjects(t *testing.T) {
	const other = "name: a\n"
	w := openWith(t, file.Options{ClusterID: west}, map[string]string{
		"a.yaml": entries("a"), "package.json": "{}", "t.yaml": "{{ if .Values.a }}\n" + serviceOf("t", 80) + "{{ end }}\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: c\n", "chart/values.yaml": other, "chart/templates/a.yaml": "a: {{ .Values.a }}\n",
	})
	var got []string
	for _, p := range w.problems {
		got = append(got, strings.TrimPrefix(p.Position.File, w.dir+"/")+" "+p.Severity.String()+" "+string(p.Code))
	}
	if want := []string{"chart/Chart.yaml info file-no-object", "package.json info file-no-object", "t.yaml info file-no-object"}; !slices.Equal(got, want) {
		t.Errorf("problems %v, want %v", w.problems, want)
	}
	write(t, w.path("a.yaml"), other)
	w.until("the loss is told", w.problem("a.yaml:1: error: kind: every document needs a kind"))
	if !w.has("a")() {
		t.Error("the object of the file is lost")
	}
	must(t, os.Remove(w.path("a.yaml")))
	w.until("it is removed", func() bool { return w.has()() && !w.problem("a.yaml:1")() })
}

// TestRefusedTemplateOfAPolicy: an access policy that is a template with a name is refused like any other, because it may be in force.
func TestRefusedTemplateOfAPolicy(t *testing.T) {
	w := open(t, map[string]string{"p.yaml": "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p}\nspec:\n{{- if .Values.a }}\n  rules: [{}]\n{{- end }}\n"})
	o := w.objects[api.Key{Kind: api.KindAuthorizationPolicy, Namespace: "default", Name: "p"}]
	if o == nil || !o.Substitute || !w.problem("p.yaml:5: error: AuthorizationPolicy default/p")() {
		t.Errorf("object %v, problems %v", o, w.problems)
	}
}
