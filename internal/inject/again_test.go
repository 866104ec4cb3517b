package inject

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/inject/owner"
	"github.com/pilotmesh/pilot/internal/inject/scrape"
	"github.com/pilotmesh/pilot/internal/inject/tree"
)

// anyPod generates pods with containers, probes, hooks, ports, volumes and annotations.
func anyPod(t *rapid.T) *corev1.Pod {
	p := pod(map[string]string{})
	annotations := map[string][]string{
		templatesAnnotation: {gatewayTemplate, grpcAgentTemplate, grpcSimpleTemplate, "sidecar,grpc-simple"}, interceptionAnnotation: {"NONE", "TPROXY"},
		nativeAnnotation: {"true", "false", "odd"}, statusPortAnnotation: {"0", "15055"}, scrape.Name: {"true", "false"}, scrape.PortName: {"80", "15020"},
		"prometheus.io.path": {"/m"}, rewriteAnnotation: {"false"}, excludeInAnnotation: {"22", "15020"}, multusAnnotation: {"a/b", `[{"name":"x"}]`},
		configAnnotation: {"concurrency: 3", "holdApplicationUntilProxyStarts: true", "proxyMetadata: {A: b}"}, cpuAnnotation: {"5m"},
		userVolumeAnnotation: {`{"more":{"emptyDir":{}}}`}, bootstrapAnnotation: {"boot"}, beforeAnnotation: {"i1"}, targetsAnnotation: {"70:/x"},
	}
	for name, values := range annotations {
		if rapid.IntRange(0, 4).Draw(t, name) == 0 {
			p.Annotations[name] = rapid.SampledFrom(values).Draw(t, name+" value")
		}
	}
	p.Spec.Containers = nil
	for n := range rapid.IntRange(1, 3).Draw(t, "containers") {
		p.Spec.Containers = append(p.Spec.Containers, anyContainer(t, fmt.Sprint("c", n)))
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "init containers") {
		c := anyContainer(t, fmt.Sprint("i", n))
		if rapid.Bool().Draw(t, "stays") {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		} else {
			c.ReadinessProbe, c.LivenessProbe, c.Lifecycle = nil, nil, nil
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if p.Annotations[templatesAnnotation] != grpcSimpleTemplate && rapid.Bool().Draw(t, "own proxy") {
		user := int64(99)
		own := corev1.Container{Name: proxyName, Image: tree.AutoImage, Env: []corev1.EnvVar{{Name: "OWN", Value: "1"}}, SecurityContext: &corev1.SecurityContext{RunAsUser: &user}}
		p.Spec.Containers = append([]corev1.Container{own}, p.Spec.Containers...)
	}
	if rapid.Bool().Draw(t, "own volume") {
		p.Spec.Volumes = []corev1.Volume{{Name: rapid.SampledFrom([]string{"mine", "istio-data"}).Draw(t, "volume"), VolumeSource: memory()}}
	}
	return p
}

func anyContainer(t *rapid.T, name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "x", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}
	handler := func(label string) *corev1.Probe {
		switch rapid.IntRange(0, 4).Draw(t, label) {
		case 1:
			return &corev1.Probe{ProbeHandler: httpGet("/x", 81), TimeoutSeconds: 2}
		case 2:
			return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}}
		case 3:
			return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}}
		}
		return nil
	}
	c.ReadinessProbe, c.LivenessProbe = handler("readiness"), handler("liveness")
	if hook := handler("hook"); hook != nil {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: hook.HTTPGet, TCPSocket: hook.TCPSocket, Exec: hook.Exec}}
	}
	return c
}

// TestAgain: injecting an injected pod changes nothing, in whatever mode; a pod has one proxy, or none with a template that adds none;
// and names of containers, volumes and mounts are distinct, so that an API server takes the pod.
func TestAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mode := rapid.SampledFrom([]string{
			"{}", "{native: true}", "{values: {pilot: {cni: {enabled: true, provider: multus}}}}", "{values: {global: {imagePullSecrets: [s], network: net-a}}}",
		}).Draw(rt, "mode")
		i, _ := prepared(t, mode)
		p := anyPod(rt)
		before := p.DeepCopy()
		first, err := i.Inject(Request{Pod: p, Owner: owner.Of(p)})
		if err != nil {
			rt.Fatal(err)
		}
		if text(rt, p) != text(rt, before) {
			rt.Fatal("the given pod has changed")
		}
		again, err := i.Inject(Request{Pod: first.Pod, Owner: owner.Of(first.Pod)})
		if err != nil {
			rt.Fatal(err)
		}
		if a, b := text(rt, first.Pod), text(rt, again.Pod); a != b {
			rt.Fatalf("again:\n%s\n%s", a, b)
		}
		distinct(rt, first.Pod, p.Annotations[templatesAnnotation] == grpcSimpleTemplate)
	})
}

func text(t *rapid.T, p *corev1.Pod) string {
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func distinct(t *rapid.T, p *corev1.Pod, bare bool) {
	seen := map[string]int{}
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for _, c := range list {
			seen["container "+c.Name]++
			for _, m := range c.VolumeMounts {
				seen["mount "+c.Name+m.MountPath]++
			}
			for _, e := range c.Env {
				seen["variable "+c.Name+e.Name]++
			}
		}
	}
	for _, v := range p.Spec.Volumes {
		seen["volume "+v.Name]++
	}
	for what, n := range seen {
		if n > 1 {
			t.Fatalf("%s is there %d times", what, n)
		}
	}
	if proxies := seen["container "+proxyName]; proxies == 1 == bare {
		t.Fatalf("the pod has %d proxies", proxies)
	}
}

// FuzzAnnotations: whatever annotations say, the pod is refused or injected as a whole, and a repetition changes nothing.
func FuzzAnnotations(f *testing.F) {
	for name := range annotationChecks() {
		f.Add(name, "1")
	}
	for _, name := range []string{configAnnotation, overridesAnnotation, statusAnnotation, userVolumeAnnotation, userMountAnnotation, templatesAnnotation, multusAnnotation, imageAnnotation} {
		f.Add(name, `{"containers":[{"name":"istio-proxy"}]}`)
	}
	f.Add(statusAnnotation, `{"containers":["main"],"volumes":["v"]}`)
	f.Add(imageAnnotation, "{{ .Values }}")
	i, err := New(Config{Values: DefaultValues()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		p := pod(map[string]string{name: value})
		r, err := i.Inject(Request{Pod: p})
		if err != nil {
			if err.Error() == "" || r.Pod != nil {
				t.Fatal(err)
			}
			return
		}
		if containerIn(&r.Pod.Spec, proxyName) == nil && value != grpcSimpleTemplate {
			t.Fatal("there is no proxy")
		}
		if again, err := i.Inject(Request{Pod: r.Pod}); err != nil || len(again.Pod.Spec.Containers) != len(r.Pod.Spec.Containers) {
			t.Fatalf("again: %v", err)
		}
	})
}
