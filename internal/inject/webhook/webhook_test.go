package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admission "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/inject"
)

// started returns a server over TLS, and its counts.
func started(t *testing.T) (*httptest.Server, *[Unreadable + 1]atomic.Int64) {
	t.Helper()
	i, err := inject.New(inject.Config{Values: inject.DefaultValues(), Tag: "1.0"})
	if err != nil {
		t.Fatal(err)
	}
	counts := new([Unreadable + 1]atomic.Int64)
	s := &Server{
		Injector: func() *inject.Injector { return i }, Namespace: func(context.Context, string) *inject.Namespace { return nil },
		Control: "istio-system", Revision: "canary", Observe: func(e Event) { counts[e].Add(1) }, Log: slog.New(slog.DiscardHandler),
	}
	server := httptest.NewTLSServer(s.Handler())
	t.Cleanup(server.Close)
	return server, counts
}

// review sends an object through a webhook.
func review(t *testing.T, server *httptest.Server, path, operation, object string) (*admission.AdmissionResponse, []byte) {
	t.Helper()
	return dryReview(t, server, path, operation, object, false)
}

// dryReview sends an object through a webhook, maybe as a dry run.
func dryReview(t *testing.T, server *httptest.Server, path, operation, object string, dry bool) (*admission.AdmissionResponse, []byte) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	q := admission.AdmissionReview{Request: &admission.AdmissionRequest{UID: "u1", Operation: admission.Operation(operation), Namespace: "shop"}}
	q.APIVersion, q.Kind = "admission.k8s.io/v1", "AdmissionReview"
	q.Request.Object.Raw, q.Request.DryRun = raw, &dry
	body, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	r, err := server.Client().Post(server.URL+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var got admission.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.StatusCode != http.StatusOK || got.Response == nil {
		t.Fatal(r.Status, err)
	}
	if got.Kind != "AdmissionReview" || got.APIVersion != "admission.k8s.io/v1" || got.Response.UID != types.UID("u1") {
		t.Fatalf("the answer is not for the request: %v", got)
	}
	return got.Response, raw
}

// applied returns the pod of an answer.
func applied(t *testing.T, a *admission.AdmissionResponse, raw []byte) (p corev1.Pod) {
	t.Helper()
	if !a.Allowed || a.PatchType == nil || *a.PatchType != admission.PatchTypeJSONPatch {
		t.Fatalf("the answer has no patch: %v", a)
	}
	patch, err := jsonpatch.DecodePatch(a.Patch)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = patch.Apply(raw); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

const somePod = `{apiVersion: v1, kind: Pod, metadata: {generateName: web-%d-}, spec: {containers: [{name: main, image: x}]}}`

// TestBurst: many pods at once get their proxies.
func TestBurst(t *testing.T) {
	server, counts := started(t)
	const pods = 200
	var all sync.WaitGroup
	for n := range pods {
		all.Go(func() {
			a, raw := review(t, server, "/inject", "CREATE", fmt.Sprintf(somePod, n))
			p := applied(t, a, raw)
			if len(p.Spec.Containers) != 2 || p.GenerateName != fmt.Sprintf("web-%d-", n) || p.Namespace != "" {
				t.Errorf("pod %d became %v", n, p.Spec.Containers)
			}
		})
	}
	all.Wait()
	if got := counts[Injected].Load(); got != pods {
		t.Errorf("%d pods were counted", got)
	}
}

// TestInject: the path names the cluster of the pod. A refusal has a reason; the control plane's own pods are never refused.
func TestInject(t *testing.T) {
	server, counts := started(t)
	a, raw := review(t, server, "/inject/cluster/east/net/n--slash--1/extra/v/", "CREATE", fmt.Sprintf(somePod, 1))
	p := applied(t, a, raw)
	env := p.Spec.Containers[1].Env
	for _, want := range []corev1.EnvVar{{Name: "ISTIO_META_CLUSTER_ID", Value: "east"}, {Name: "ISTIO_META_NETWORK", Value: "n/1"}, {Name: "EXTRA", Value: "v"}} {
		if !slices.Contains(env, want) {
			t.Errorf("there is no %v in %v", want, env)
		}
	}
	const wrong = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: %s, annotations: {sidecar.istio.io/proxyCPU: lots}}, spec: {containers: [{name: main}]}}`
	if a, _ = review(t, server, "/inject", "CREATE", fmt.Sprintf(wrong, "shop")); a.Allowed || !strings.Contains(a.Result.Message, "sidecar.istio.io/proxyCPU") {
		t.Errorf("a wrong annotation: %v", a)
	}
	if a, _ = review(t, server, "/inject", "CREATE", fmt.Sprintf(wrong, "istio-system")); !a.Allowed || len(a.Patch) > 0 || len(a.Warnings) != 1 {
		t.Errorf("a pod of the control plane: %v", a)
	}
	a, raw = review(t, server, "/inject/cluster/east/net/", "CREATE", fmt.Sprintf(somePod, 1))
	if len(a.Warnings) != 1 || !slices.Contains(applied(t, a, raw).Spec.Containers[1].Env, corev1.EnvVar{Name: "ISTIO_META_CLUSTER_ID", Value: "east"}) {
		t.Errorf("a path whose last name has no value: %v", a)
	}
	if a, _ = review(t, server, "/inject", "CREATE", "{spec: {hostNetwork: true}}"); !a.Allowed || len(a.Patch) > 0 || counts[Skipped].Load() != 1 {
		t.Errorf("the network of the host: %v", a)
	}
	if a, _ = review(t, server, "/inject", "UPDATE", fmt.Sprintf(somePod, 1)); !a.Allowed || len(a.Patch) > 0 {
		t.Errorf("an update: %v", a)
	}
	if a, _ = review(t, server, "/inject", "CREATE", "{spec: 7}"); a.Allowed {
		t.Errorf("no pod: %v", a)
	}
}

// TestValidate: mistakes refuse, remarks are warnings, and what goes away is never held.
func TestValidate(t *testing.T) {
	server, _ := started(t)
	const policy = `{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: shop%s}, spec: {action: %s, rules: [{}]}}`
	for _, c := range []struct{ operation, object, want string }{
		{"CREATE", fmt.Sprintf(policy, "", "DENY"), ""},
		{"UPDATE", fmt.Sprintf(policy, "", "DENIES"), "spec.action"},
		{"DELETE", fmt.Sprintf(policy, "", "DENIES"), ""},
		{"UPDATE", fmt.Sprintf(policy, ", deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [a/b]", "DENIES"), ""},
		{"CREATE", "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: shop}, spec: {hosts: [a.b], http: [{rout: []}]}}", "spec.http[0]"},
		{"CREATE", "{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: v, namespace: shop}, spec: {accessLogging: [{disabled: true}]}}", ""},
		{"CREATE", "{apiVersion: v1, kind: ConfigMap, metadata: {name: v, namespace: shop}}", ""},
		{"CREATE", "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: v, namespace: shop}, spec: {ports: [{number: 80, name: http, protocol: HTTP}]}}", "spec.hosts"},
	} {
		a, _ := review(t, server, "/validate", c.operation, c.object)
		if a.Allowed != (c.want == "") || !a.Allowed && !strings.Contains(a.Result.Message, c.want) {
			t.Errorf("%s %s: %v", c.operation, c.object, a)
		}
	}
}

// TestSelfTest: a revision refuses the object of its own self-test, and nothing else that looks like it.
func TestSelfTest(t *testing.T) {
	server, counts := started(t)
	object := func(namespace, revision string) string {
		return fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: %s, namespace: %s, labels: {istio.io/rev: %s}}, spec: {address: 192.0.2.1}}`,
			SelfTest, namespace, revision)
	}
	for _, c := range []struct {
		namespace, revision string
		dry, refused        bool
	}{
		{"istio-system", "canary", true, true},
		{"istio-system", "canary", false, false},
		{"istio-system", "default", true, false},
		{"shop", "canary", true, false},
	} {
		a, _ := dryReview(t, server, "/validate", "CREATE", object(c.namespace, c.revision), c.dry)
		if a.Allowed == c.refused || c.refused && a.Result.Message != SelfTestAnswer("canary") {
			t.Errorf("%+v: %+v", c, a)
		}
	}
	if n := counts[Invalid].Load(); n != 0 {
		t.Errorf("%d self-tests count as objects that are invalid", n)
	}
}

// TestUnreadable: a body that is no request gets an error of HTTP, and is counted.
func TestUnreadable(t *testing.T) {
	server, counts := started(t)
	for _, c := range []struct {
		method, kind, body string
		want               int
	}{
		{"GET", "", "", http.StatusMethodNotAllowed}, {"POST", "text/plain", "{}", http.StatusUnsupportedMediaType}, {"POST", "application/json", "{", http.StatusBadRequest},
		{"POST", "application/json", "{}", http.StatusBadRequest}, {"POST", "application/json; charset=utf-8", `{"apiVersion":"admission.k8s.io/v1beta1","request":{}}`, http.StatusBadRequest},
		{"POST", "application/json", `"` + strings.Repeat("x", maxReview) + `"`, http.StatusRequestEntityTooLarge},
	} {
		q, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+"/validate", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", c.kind)
		r, err := server.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != c.want || len(text) == 0 {
			t.Errorf("%s %q: %s %s", c.method, c.kind, r.Status, text)
		}
	}
	if got := counts[Unreadable].Load(); got != 6 {
		t.Errorf("%d were counted", got)
	}
}

// TestPanic: an object that breaks the check is refused.
func TestPanic(t *testing.T) {
	a := contained(&admission.AdmissionRequest{}, func(*admission.AdmissionRequest) *admission.AdmissionResponse { panic("broken") })
	if a.Allowed || !strings.Contains(a.Result.Message, "broken") {
		t.Error(a)
	}
}

// TestNotReady: while the settings of injection are unknown, pods wait. Pods of the control plane do not, because the control plane reads these settings.
func TestNotReady(t *testing.T) {
	s := &Server{Injector: func() *inject.Injector { return nil }, Control: "istio-system", Observe: func(Event) {}, Log: slog.New(slog.DiscardHandler)}
	for namespace, want := range map[string]bool{"shop": false, "istio-system": true} {
		q := &admission.AdmissionRequest{Operation: admission.Create, Namespace: namespace}
		q.Object.Raw = []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}`)
		if a := s.inject(t.Context(), "/inject", q); a.Allowed != want || len(a.Patch) > 0 {
			t.Errorf("a pod of %s: %+v", namespace, a)
		}
	}
}
