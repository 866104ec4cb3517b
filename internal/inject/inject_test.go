package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/inject/owner"
	"github.com/pilotmesh/pilot/internal/inject/scrape"
	"github.com/pilotmesh/pilot/internal/inject/tree"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// settings is the first file of an archive: what the injection depends on besides the workloads.
type settings struct {
	Mesh, Values, Namespace json.RawMessage
	Revision, Compliance    string
	Native, OpenShift       bool
	Objects                 string
}

// prepared returns the injector of an archive.
func prepared(t testing.TB, text string) (*Injector, *Namespace) {
	t.Helper()
	var s settings
	if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	mesh, problems := api.DecodeMesh("mesh", s.Mesh)
	values, err := ParseValues(s.Values)
	if mesh == nil || err != nil {
		t.Fatal(problems, err)
	}
	c := Config{Mesh: mesh, Values: values, Revision: s.Revision, Compliance: s.Compliance, NativeSidecars: s.Native, OpenShift: s.OpenShift, Tag: "1.0"}
	if c.ProxyConfigs, problems = ReadProxyConfigs("objects", []byte(s.Objects)); problems != nil {
		t.Fatal(problems)
	}
	i, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var n *Namespace
	if s.Namespace != nil {
		if err := json.Unmarshal(s.Namespace, &n); err != nil {
			t.Fatal(err)
		}
	}
	return i, n
}

// TestGolden: each archive has settings and workloads, and then the injected workloads and the remarks about them.
func TestGolden(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) < 8 {
		t.Fatal(archives, err)
	}
	for _, path := range archives {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			i, n := prepared(t, string(a.Files[0].Data))
			text, outcomes, err := i.File("input.yaml", a.Files[1].Data, n)
			got := []txtar.File{{Name: "output.yaml", Data: text}, {Name: "said", Data: said(outcomes, err)}}
			if *update {
				a.Files = append(a.Files[:2], got...)
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			for n, f := range got {
				if len(a.Files) < 4 || !bytes.Equal(a.Files[n+2].Data, f.Data) {
					t.Errorf("%s differs; run with -update if that is meant:\n%s", f.Name, f.Data)
				}
			}
		})
	}
}

func said(outcomes []Outcome, err error) []byte {
	var b bytes.Buffer
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%v: %s\n", o, o.Decision.Reason)
		for _, w := range o.Warnings {
			fmt.Fprintf(&b, "  warning: %s\n", w)
		}
	}
	if err != nil {
		fmt.Fprintln(&b, "error:", err)
	}
	return b.Bytes()
}

// pod returns a pod with annotations and a container.
func pod(annotations map[string]string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.Annotations = "web", "shop", annotations
	p.Labels = map[string]string{"app": "web"}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "shop.example/main:1"}}
	return p
}

func injected(t *testing.T, i *Injector, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	r, err := i.Inject(Request{Pod: p, Owner: owner.Of(p)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Pod
}

// TestRefusals: a wrong annotation refuses the pod; the refusal names the annotation and the remedy, and nothing is injected.
func TestRefusals(t *testing.T) {
	i, _ := prepared(t, "{}")
	for annotation, cases := range map[string]map[string]string{
		interceptionAnnotation:  {"redirect": "REDIRECT, TPROXY or NONE"},
		statusPortAnnotation:    {"65536": "number of a port", "-1": "number of a port"},
		periodAnnotation:        {"5s": "without a unit", "4294967295": "whole number"},
		includeRangesAnnotation: {"10.0.0.0": "no range", "*,10.0.0.0/8": "no range", "10.0.0.0/8, 10.1.0.0/16": "without blanks", "10.0.0.0/8,": "no range"},
		excludeRangesAnnotation: {"*": "no range"},
		includeInAnnotation:     {"80,http": `"http" is not the number`, "80,,81": "not the number"},
		excludeInAnnotation:     {"*": "not the number", "99999": "not the number"},
		includeOutAnnotation:    {"-x": "not the number"},
		excludeOutAnnotation:    {"80;81": "not the number"},
		interfacesAnnotation:    {"eth0/..": "network interface", "averylonginterfacename": "15 characters"},
		mergeAnnotation:         {"perhaps": "true or false"},
		targetsAnnotation:       {"9000:/metrics,15090:/stats": "15090", "http:/m": "PORT:PATH", "80:m": "PORT:PATH"},
		cpuAnnotation:           {"much": "quantity", "-1": "quantity"},
		memoryLimitAnnotation:   {"1 Gi": "quantity"},
		userVolumeAnnotation:    {"{": "no JSON", `{"a":{"hostpathx":1}}`: "unknown field", "a: {emptyDir: {}}": "no JSON"},
		userMountAnnotation:     {`{"a":{"mountPath":"x"}}`: "slash", `[{"mountPath":"/x"}]`: "entry 1 has no name", `"a"`: "no JSON"},
		templatesAnnotation:     {"sidcar": "no template", " ": "names no template"},
		overridesAnnotation:     {"{": "remove the annotation", `{"containers":7}`: "remove the annotation"},
		configAnnotation: {
			"concurrency: [": "YAML", "concurrency: many": "concurrency", "drainDuration: 1ms": "drainDuration", "- a": "mapping", "concurrency: -1": "negative",
			"proxyMetadata: {\"A=B\": c}": "environment variable", "a: &a [x]\nb: [*a, *a]\n---\nc: 1": "several documents",
		},
	} {
		for value, want := range cases {
			p := pod(map[string]string{annotation: value})
			r, err := i.Inject(Request{Pod: p})
			var refusal *refusalError
			if !errors.As(err, &refusal) || refusal.Annotation != annotation || !strings.Contains(err.Error(), want) || r.Pod != nil {
				t.Errorf("%s=%q: %v, want %q", annotation, value, err, want)
			}
		}
	}
}

// TestKept: an injected pod goes through a patch, which must leave alone what this program does not know.
func TestKept(t *testing.T) {
	i, _ := prepared(t, "{}")
	text := `apiVersion: v1
kind: Pod
metadata: {name: web, futureMeta: 1}
spec:
  futureSpec: [1, 2]
  volumes: [{name: v, futureVolume: {a: 1}}]
  containers:
  - {name: istio-proxy, image: auto, future: proxy}
  - {name: main, image: "shop.example/main:1", futureField: {deep: true}, resources: {requests: {cpu: 0.25}}}
`
	out, _, err := i.File("input", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"futureMeta: 1", "futureSpec:", "futureVolume:", "futureField:\n      deep: true", "cpu: 0.25"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is lost:\n%s", want, out)
		}
	}
}

// TestUntouched: a file without workloads to inject is printed byte for byte.
func TestUntouched(t *testing.T) {
	i, _ := prepared(t, "{}")
	for _, text := range []string{
		"", "# nothing\n", "a: 1\n---\n# comment\nkind: Service\n", "---\napiVersion: apps/v1beta1\nkind: Deployment\nspec: {}\n", "just text",
		"apiVersion: v1\nkind: Pod\nmetadata: {name:   a, namespace: kube-system}\nspec: {containers: []}", "apiVersion: v1\nkind: List\nitems: [{kind: X}]\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {sidecar.istio.io/inject: 'false'}}\nspec: {containers: []}",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {hostNetwork: true}}}",
	} {
		if out, _, err := i.File("input", []byte(text), nil); err != nil || string(out) != text {
			t.Errorf("%q became %q (%v)", text, out, err)
		}
	}
	for _, text := range []string{"apiVersion: v1\nkind: Pod\nspec: [", "apiVersion: apps/v1\nkind: Deployment\nspec: {}", "apiVersion: v1\nkind: Pod\nspec: {containers: 1}"} {
		if out, _, err := i.File("input", []byte(text), nil); err == nil || out != nil || !strings.HasPrefix(err.Error(), "input:1: ") {
			t.Errorf("%q became %q (%v)", text, out, err)
		}
	}
}

// TestPatch: the patch of the webhook, applied to the pod as an API server has it, gives the injected pod.
func TestPatch(t *testing.T) {
	for _, mode := range []string{"{}", "{native: true}"} {
		i, _ := prepared(t, mode)
		p := pod(nil)
		p.Spec.Containers = append([]corev1.Container{{Name: proxyName, Image: tree.AutoImage}}, p.Spec.Containers...)
		p.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: captureName, Image: "own"}, {Name: "b"}}
		after := injected(t, i, p)
		text, err := tree.Patch(p, after)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := json.Marshal(p)
		got, err := patch.Apply(raw)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(after)
		if !jsonpatch.Equal(got, want) {
			t.Errorf("%s\nbecame %s", text, got)
		}
		if again, err := tree.Patch(after, after); err != nil || string(again) != "[]" {
			t.Errorf("a patch of nothing is %s (%v)", again, err)
		}
	}
}

// TestUserContainer: what a user writes for the proxy goes before the injected fields, and never makes a container that an API server refuses.
func TestUserContainer(t *testing.T) {
	i, _ := prepared(t, "{}")
	p := pod(nil)
	text := `{name: istio-proxy, image: auto, env: [{name: POD_NAME, value: fixed}], readinessProbe: {tcpSocket: {port: 15021}, periodSeconds: 3},
	  lifecycle: {preStop: {sleep: {seconds: 4}}}, resources: {requests: {cpu: 7m}}, ports: [{containerPort: 15090, name: other}], securityContext: {runAsUser: 77}}`
	var user corev1.Container
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", "")), &user); err != nil {
		t.Fatal(err)
	}
	p.Spec.Containers = append(p.Spec.Containers, user)
	after := injected(t, i, p)
	c := containerIn(&after.Spec, proxyName)
	name := c.Env[slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "POD_NAME" })]
	capture := containerIn(&after.Spec, captureName)
	switch {
	case name.Value != "fixed" || name.ValueFrom != nil:
		t.Errorf("POD_NAME is %v", name)
	case c.ReadinessProbe.HTTPGet != nil || c.ReadinessProbe.TCPSocket == nil || c.ReadinessProbe.PeriodSeconds != 3 || c.ReadinessProbe.TimeoutSeconds != 3:
		t.Errorf("the probe is %v", c.ReadinessProbe)
	case c.Lifecycle.PreStop.Sleep == nil || c.Resources.Requests.Cpu().String() != "7m" || c.Resources.Limits.Memory().String() != "1Gi":
		t.Errorf("hook and resources are %v, %v", c.Lifecycle, c.Resources)
	case len(c.Ports) != 1 || c.Ports[0].Name != "other" || *c.SecurityContext.RunAsUser != 77 || !*c.SecurityContext.RunAsNonRoot:
		t.Errorf("ports and user are %v, %v", c.Ports, c.SecurityContext)
	case capture.Args[slices.Index(capture.Args, "-u")+1] != "77":
		t.Errorf("the capture spares %v", capture.Args)
	}
	p = pod(map[string]string{templatesAnnotation: grpcSimpleTemplate})
	p.Spec.Containers = append(p.Spec.Containers, user)
	r, err := i.Inject(Request{Pod: p})
	if err != nil || containerIn(&r.Pod.Spec, proxyName) != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], proxyName) {
		t.Errorf("a proxy that no template injects: %v, %v", r, err)
	}
	p.Spec.Containers[1].Image = "own"
	if after := injected(t, i, p); containerIn(&after.Spec, proxyName) == nil {
		t.Errorf("a proxy of the user's is lost: %v", after.Spec.Containers)
	}
}

// TestProbesStay: probes that the agent cannot run stay with the kubelet.
func TestProbesStay(t *testing.T) {
	i, _ := prepared(t, "{}")
	for _, text := range []string{
		"{exec: {command: [x]}}", "{httpGet: {port: 80, host: other.example}}", "{tcpSocket: {port: 80, host: 192.0.2.1}}", "{httpGet: {port: nowhere}}",
		"{httpGet: {port: 15020, path: /app-health/main/readyz}}",
	} {
		p := pod(nil)
		if err := yaml.Unmarshal([]byte(text), &p.Spec.Containers[0].ReadinessProbe); err != nil {
			t.Fatal(err)
		}
		want := p.Spec.Containers[0].ReadinessProbe.DeepCopy()
		after := injected(t, i, p)
		if got := after.Spec.Containers[0].ReadinessProbe; got.String() != want.String() {
			t.Errorf("%s became %v", text, got)
		}
	}
}

// TestStatusPort: the port of the annotation is the one at which the agent listens, probes arrive, and nothing is captured. With 0 nothing probes the
// agent, and the application's probes stay as they are; Prometheus still gets the metrics of both from the agent.
func TestStatusPort(t *testing.T) {
	i, _ := prepared(t, "{native: true}")
	p := pod(map[string]string{statusPortAnnotation: "15999"})
	if err := yaml.Unmarshal([]byte("{httpGet: {port: 80}}"), &p.Spec.Containers[0].LivenessProbe); err != nil {
		t.Fatal(err)
	}
	after := injected(t, i, p)
	c, capture := containerIn(&after.Spec, proxyName), containerIn(&after.Spec, captureName)
	spared := capture.Args[slices.Index(capture.Args, "-d")+1]
	if !slices.Contains(c.Args, "--statusPort=15999") || spared != "15090,15021,15999" || after.Annotations[scrape.PortName] != "15999" ||
		after.Spec.Containers[0].LivenessProbe.HTTPGet.Port.IntVal != 15999 || c.Lifecycle.PreStop.Exec.Command[2] != "--debug-port=15999" {
		t.Errorf("%v %s %v %v", c.Args, spared, after.Annotations, c.Lifecycle)
	}
	p.Annotations[statusPortAnnotation] = "0"
	after = injected(t, i, p)
	c, capture = containerIn(&after.Spec, proxyName), containerIn(&after.Spec, captureName)
	spared = capture.Args[slices.Index(capture.Args, "-d")+1]
	if c.ReadinessProbe != nil || c.StartupProbe != nil || slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--statusPort") }) ||
		spared != "15090,15021" || after.Annotations[scrape.PortName] != "15020" || after.Spec.Containers[0].LivenessProbe.HTTPGet.Port.IntVal != 80 {
		t.Errorf("without health checks: %v %s %v %v", c, spared, after.Annotations, after.Spec.Containers[0].LivenessProbe)
	}
}
