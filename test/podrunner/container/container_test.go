package container_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/test/podrunner/container"
	"github.com/pilotmesh/pilot/test/podrunner/image"
)

type objects struct{}

func (objects) ConfigMap(name string) (*v1.ConfigMap, error) {
	if name != "c" {
		return nil, container.ErrNotFound
	}
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Data: map[string]string{"K": "config"}}, nil
}

func (objects) Secret(name string) (*v1.Secret, error) {
	if name != "s" {
		return nil, container.ErrNotFound
	}
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Data: map[string][]byte{"K": []byte("secret")}}, nil
}

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return object
}

func facts(t *testing.T) container.Facts {
	return container.Facts{
		Pod: parse[v1.Pod](t, `
metadata: {name: p, namespace: ns, uid: u, labels: {l: x}}
spec: {nodeName: node, serviceAccountName: sa, containers: [{name: other, resources: {requests: {memory: 1000Ki}}}]}`),
		HostIPs: []string{"10.0.0.1"}, PodIPs: []string{"10.0.0.2", "fd00::2"},
		Allocatable: *parse[v1.ResourceList](t, `cpu: "8"`),
		Services: []*v1.Service{
			parse[v1.Service](t, `{metadata: {name: my-svc, namespace: ns}, spec: {clusterIP: 10.1.0.1, ports: [{name: web, port: 80, protocol: TCP}]}}`),
			parse[v1.Service](t, `{metadata: {name: headless, namespace: ns}, spec: {clusterIP: None, ports: [{port: 80}]}}`),
		},
	}
}

func TestEnvironment(t *testing.T) {
	for _, test := range []struct{ spec, want string }{
		{`{env: [{name: A, value: "1"}, {name: B, value: "$(A)-$$(A)-$(NONE)-$"}]}`, "A=1 B=1-$(A)-$(NONE)-$"},
		{`{env: [{name: A, value: "$(MY_SVC_SERVICE_HOST):$(MY_SVC_SERVICE_PORT_WEB)"}]}`, "A=10.1.0.1:80"},
		{`{env: [{name: A, value: "$(MY_SVC_PORT)"}, {name: H, value: "$(HEADLESS_SERVICE_HOST)"}]}`, "A=tcp://10.1.0.1:80 H=$(HEADLESS_SERVICE_HOST)"},
		{`{env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]}`, "A=10.0.0.2,fd00::2"},
		{`{env: [{name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['l']"}}}]}`, "A=x"},
		{`{env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}`, "A=node"},
		{`{env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.other}}}]}`, "error: unsupported fieldPath: spec.other"},
		{`{env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}`, "A=8"},
		{`{resources: {limits: {cpu: 250m}}, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}`, "A=1"},
		{`{resources: {limits: {cpu: 250m}}, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}]}`, "A=250"},
		{`{env: [{name: A, valueFrom: {resourceFieldRef: {containerName: other, resource: requests.memory, divisor: 1Mi}}}]}`, "A=1"},
		{`{env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: K}}}]}`, "A=secret"},
		{`{env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: none}}}]}`, "error: couldn't find key none in Secret ns/s"},
		{`{env: [{name: A, valueFrom: {secretKeyRef: {name: none, key: K}}}]}`, `error: secret "none" not found`},
		{`{env: [{name: A, valueFrom: {secretKeyRef: {name: none, key: K, optional: true}}}]}`, ""},
		{`{envFrom: [{prefix: P_, configMapRef: {name: c}}, {secretRef: {name: s}}], env: [{name: A, value: "$(P_K)"}]}`, "A=config K=secret P_K=config"},
		{`{envFrom: [{configMapRef: {name: none}}]}`, `error: configmap "none" not found`},
		{`{env: [{name: IMAGE, value: own}]}`, "IMAGE=own"},
	} {
		img := image.Image{Env: map[string]string{"IMAGE": "its"}}
		env, err := container.Environment(facts(t), parse[v1.Container](t, test.spec), img, objects{})
		var words []string
		for _, variable := range container.List(env) {
			name, _, _ := strings.Cut(variable, "=")
			if name != "PATH" && name != "HOSTNAME" && !strings.HasPrefix(name, "MY_SVC") && variable != "IMAGE=its" {
				words = append(words, variable)
			}
		}
		got := strings.Join(words, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.spec, got, test.want)
		}
	}
}

func TestCommand(t *testing.T) {
	for _, test := range []struct {
		img        image.Image
		spec, want string
	}{
		{image.Image{Program: "/p", Args: []string{"a"}}, `{}`, "/p a"},
		{image.Image{Program: "/p", Args: []string{"a"}}, `{args: [b, "$(V)"], env: [{name: V, value: v}]}`, "/p b v"},
		{image.Image{Program: "/p", Args: []string{"a"}}, `{command: [c]}`, "c"},
		{image.Image{Program: "/$(V)"}, `{command: ["$(V)"], args: [d], env: [{name: V, value: v}]}`, "v d"},
		{image.Image{Program: "/$(V)"}, `{args: [d], env: [{name: V, value: v}]}`, "/$(V) d"},
	} {
		out, err := container.Spec(facts(t), parse[v1.Container](t, test.spec), test.img, objects{})
		if got := strings.Join(out.Args, " "); err != nil || got != test.want {
			t.Errorf("%+v %s: got %q, %v; want %q", test.img, test.spec, got, err, test.want)
		}
	}
	if _, err := container.Spec(facts(t), &v1.Container{}, image.Image{}, objects{}); err == nil {
		t.Error("a container without any command is accepted")
	}
}

func TestIdentity(t *testing.T) {
	const plain = 0xa80425fb
	for _, test := range []struct {
		user, pod, container string
		wantUser, wantGroup  int
		groups               []int
		capabilities         uint64
	}{
		{"", `{}`, `{}`, 0, 0, []int{0}, plain},
		{"1337:1338", `{}`, `{}`, 1337, 1338, []int{1338}, plain},
		{"1337", `{runAsUser: 5000, runAsGroup: 7, fsGroup: 8, supplementalGroups: [9]}`, `{}`, 5000, 7, []int{7, 8, 9}, plain},
		{"", `{runAsUser: 5000}`, `{runAsUser: 6000}`, 6000, 0, []int{0}, plain},
		{"", `{}`, `{capabilities: {add: [NET_ADMIN], drop: [ALL]}}`, 0, 0, []int{0}, 1 << 12},
		{"", `{}`, `{capabilities: {add: [CAP_NET_ADMIN], drop: [KILL]}}`, 0, 0, []int{0}, (plain | 1<<12) &^ (1 << 5)},
		{"", `{}`, `{privileged: true}`, 0, 0, []int{0}, ^uint64(0)},
	} {
		f := facts(t)
		f.Pod.Spec.SecurityContext = parse[v1.PodSecurityContext](t, test.pod)
		spec := &v1.Container{Command: []string{"x"}, SecurityContext: parse[v1.SecurityContext](t, test.container)}
		out, err := container.Spec(f, spec, image.Image{User: test.user}, objects{})
		if err != nil {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		if out.User != test.wantUser || out.Group != test.wantGroup || !slices.Equal(out.Groups, test.groups) || out.Capabilities != test.capabilities {
			t.Errorf("%+v: got user %d group %d groups %v capabilities %x", test, out.User, out.Group, out.Groups, out.Capabilities)
		}
	}
	f := facts(t)
	f.Pod.Spec.SecurityContext = parse[v1.PodSecurityContext](t, `{runAsNonRoot: true}`)
	if _, err := container.Spec(f, &v1.Container{Command: []string{"x"}}, image.Image{}, objects{}); err == nil || !strings.Contains(err.Error(), "runAsNonRoot") {
		t.Errorf("root where none may be: %v", err)
	}
	bad := &v1.Container{Command: []string{"x"}, SecurityContext: parse[v1.SecurityContext](t, `{capabilities: {add: [NO_SUCH]}}`)}
	if _, err := container.Spec(facts(t), bad, image.Image{}, objects{}); err == nil || errors.Is(err, container.ErrNotFound) {
		t.Errorf("unknown capability: %v", err)
	}
}
