package inject

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/inject/scrape"
)

// withContainers returns a pod with annotations and the containers of a text.
func withContainers(t *testing.T, annotations map[string]string, text string) *corev1.Pod {
	t.Helper()
	p := pod(annotations)
	p.Spec.Containers = nil
	if err := yaml.Unmarshal([]byte(text), &p.Spec.Containers); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPluginPorts: a CNI plugin captures all inbound ports of a pod without the annotation, so values that capture none are written, too.
func TestPluginPorts(t *testing.T) {
	for value, want := range map[string]string{"80": "80", "": "", "'*'": "*"} {
		i, _ := prepared(t, "{values: {pilot: {cni: {enabled: true}}, global: {proxy: {includeInboundPorts: "+cmp.Or(value, "''")+"}}}}")
		after := injected(t, i, pod(nil))
		if got, ok := after.Annotations[includeInAnnotation]; !ok || got != want {
			t.Errorf("%q: the annotation is %q (%v)", value, got, ok)
		}
	}
}

// TestTemplateNames: a list with an empty name is a mistake, as in Istio. Blanks around names do no harm.
func TestTemplateNames(t *testing.T) {
	i, _ := prepared(t, "{}")
	for text, fails := range map[string]bool{"sidecar": false, " gateway ": false, "sidecar, grpc-simple": false, "sidecar,": true, ",": true, "": true, "sidecar,,gateway": true} {
		_, err := i.Inject(Request{Pod: pod(map[string]string{templatesAnnotation: text})})
		if (err != nil) != fails || err != nil && !strings.Contains(err.Error(), templatesAnnotation) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestDeploymentConfig: OpenShift's older kind of Deployment has pods, too.
func TestDeploymentConfig(t *testing.T) {
	i, _ := prepared(t, "{}")
	text := "apiVersion: apps.openshift.io/v1\nkind: DeploymentConfig\nmetadata: {name: web, namespace: shop}\nspec: {template: {spec: {containers: [{name: main, image: x}]}}}\n"
	out, outcomes, err := i.File("input", []byte(text), nil)
	const owner = "kubernetes://apis/apps.openshift.io/v1/namespaces/shop/deploymentconfigs/web"
	if err != nil || len(outcomes) != 1 || !strings.Contains(string(out), owner) {
		t.Errorf("%v %v\n%s", outcomes, err, out)
	}
}

// TestCollector: Lightstep's tracer finds the authorities of its collector where the tracing names them.
func TestCollector(t *testing.T) {
	const secure = "tracing: {tlsSettings: {mode: SIMPLE, caCertificates: /etc/lightstep/ca.pem}}"
	for _, c := range []struct{ tracer, config, want string }{
		{"lightstep", secure, "/etc/lightstep"}, {"none", secure, ""}, {"lightstep", "{}", ""}, {"lightstep", "tracing: {tlsSettings: {caCertificates: /ca.pem}}", ""},
	} {
		i, _ := prepared(t, "{values: {global: {proxy: {tracer: "+c.tracer+"}}}}")
		after := injected(t, i, pod(map[string]string{configAnnotation: c.config}))
		proxy, got := containerIn(&after.Spec, proxyName), ""
		if n := slices.IndexFunc(proxy.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "lightstep-certs" && m.ReadOnly }); n >= 0 {
			got = proxy.VolumeMounts[n].MountPath
		}
		v := volumeOf(after, "lightstep-certs")
		if got != c.want || (v != nil) != (c.want != "") || v != nil && (v.Secret.SecretName != "lightstep.cacert" || !*v.Secret.Optional) {
			t.Errorf("%v: the volume is %v, mounted at %q", c, v, got)
		}
	}
}

// TestScrapeWithoutAgent: Prometheus is pointed at the agent of a pod that has none, as by Istio, unless the pod says where its metrics are.
func TestScrapeWithoutAgent(t *testing.T) {
	i, _ := prepared(t, "{}")
	for own, want := range map[string]string{"": "15020 /stats/prometheus true", scrape.PortName: "9090  ", scrape.Name: "  9090"} {
		p := pod(map[string]string{templatesAnnotation: grpcSimpleTemplate})
		if own != "" {
			p.Annotations[own] = "9090"
		}
		once := injected(t, i, p)
		for _, after := range []*corev1.Pod{once, injected(t, i, once)} {
			a := after.Annotations
			if got := a[scrape.PortName] + " " + a[scrape.PathName] + " " + a[scrape.Name]; got != want {
				t.Errorf("%q: %q, want %q", own, got, want)
			}
		}
	}
}

// TestOrderOfPorts: the ports of the pod are in the order in which the user wrote the containers, also after a second injection.
func TestOrderOfPorts(t *testing.T) {
	i, _ := prepared(t, "{}")
	const proxy, main = "{name: istio-proxy, image: auto, ports: [{containerPort: 15443}]}", "{name: main, image: x, ports: [{containerPort: 80}]}"
	for text, want := range map[string]string{
		"[" + proxy + ", " + main + "]": `[{"containerPort":15443},{"containerPort":80}]`, "[" + main + ", " + proxy + "]": `[{"containerPort":80},{"containerPort":15443}]`,
		"[" + proxy + "]": `[{"containerPort":15443}]`,
	} {
		once := injected(t, i, withContainers(t, nil, text))
		for _, after := range []*corev1.Pod{once, injected(t, i, once)} {
			if got := valueOf(containerIn(&after.Spec, proxyName), "ISTIO_META_POD_PORTS"); got != want {
				t.Errorf("%s: %s", text, got)
			}
		}
	}
}

// TestNullValues: null removes a default, as in Helm; also in values that say little else.
func TestNullValues(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                "2 1Gi 100m 128Mi probe",
		"{resources: null}": "0 0 0 0 probe",
		"{resources: {}}":   "2 1Gi 100m 128Mi probe",
		"{resources: {limits: null, requests: {memory: null}}}":     "0 0 100m 0 probe",
		"{resources: {limits: {cpu: null, memory: 2Gi}}}":           "0 2Gi 100m 128Mi probe",
		"{startupProbe: null}":                                      "2 1Gi 100m 128Mi ",
		"{startupProbe: {enabled: false}, resources: {limits: {}}}": "2 1Gi 100m 128Mi ",
	} {
		i, _ := prepared(t, "{values: {global: {proxy: "+text+"}}}")
		c := containerIn(&injected(t, i, pod(nil)).Spec, proxyName)
		l, r := c.Resources.Limits, c.Resources.Requests
		got := strings.Join([]string{l.Cpu().String(), l.Memory().String(), r.Cpu().String(), r.Memory().String(), ""}, " ")
		if c.StartupProbe != nil {
			got += "probe"
		}
		if _, zero := l[corev1.ResourceCPU]; got != want || zero && l.Cpu().IsZero() {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
