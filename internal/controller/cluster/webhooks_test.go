package cluster

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
)

// TestWebhookRoots: the roots go into the webhooks of the control plane's namespace without them, and nowhere else; they are never emptied.
func TestWebhookRoots(t *testing.T) {
	roots := "roots"
	w := &Webhooks{Namespace: "mesh", Roots: func() []byte { return []byte(roots) }}
	service := func(namespace, bundle string) hook {
		return hook{client: registration.WebhookClientConfig{Service: &registration.ServiceReference{Namespace: namespace}, CABundle: []byte(bundle)}}
	}
	url := "https://example.org"
	all := []hook{service("mesh", ""), service("other", ""), {client: registration.WebhookClientConfig{URL: &url}}, service("mesh", "old"), service("mesh", "roots")}
	patch, err := w.patch("7", all)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},` +
		`{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"cm9vdHM="},{"op":"add","path":"/webhooks/3/clientConfig/caBundle","value":"cm9vdHM="}]`
	if string(patch) != want {
		t.Errorf("the patch is %s", strings.ReplaceAll(string(patch), "},", "},\n"))
	}
	if patch, err := w.patch("7", all[1:3]); patch != nil || err != nil {
		t.Errorf("webhooks of others: %s, %v", patch, err)
	}
	roots = ""
	if patch, err := w.patch("7", all); patch != nil || err != nil {
		t.Errorf("without roots: %s, %v", patch, err)
	}
}

// TestFailurePolicy: only webhooks of the control plane's namespace get another policy, if they should have one.
func TestFailurePolicy(t *testing.T) {
	w := &Webhooks{Namespace: "mesh", Roots: func() []byte { return []byte("roots") }}
	service := func(namespace string, fails, wants registration.FailurePolicyType) hook {
		client := registration.WebhookClientConfig{Service: &registration.ServiceReference{Namespace: namespace}, CABundle: []byte("roots")}
		return hook{client, fails, wants}
	}
	const ignore, fail = registration.Ignore, registration.Fail
	all := []hook{service("mesh", ignore, fail), service("mesh", fail, ""), service("other", ignore, fail), service("mesh", fail, fail)}
	patch, err := w.patch("7", all)
	const want = `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/webhooks/0/failurePolicy","value":"Fail"}]`
	if string(patch) != want || err != nil {
		t.Errorf("the patch is %s, %v", patch, err)
	}
	if patch, err := w.patch("7", all[1:]); patch != nil || err != nil {
		t.Errorf("a patch of nothing: %s, %v", patch, err)
	}
}

// TestTests: one test that succeeds closes validation, two that fail in a row open it again; at the start one is enough.
func TestTests(t *testing.T) {
	p := policy{}
	for n, step := range []struct {
		answered bool
		is       registration.FailurePolicyType
		changed  bool
	}{
		{false, registration.Ignore, true},
		{true, registration.Fail, true},
		{false, registration.Fail, false},
		{true, registration.Fail, false},
		{false, registration.Fail, false},
		{false, registration.Ignore, true},
		{false, registration.Ignore, false},
		{true, registration.Fail, true},
	} {
		if changed := p.saw(step.answered); changed != step.changed || p.is != step.is {
			t.Errorf("step %d: %s, changed %t", n, p.is, changed)
		}
	}
}

// TestResolved: the labels of namespaces with tags, as the webhooks of revisions select them.
func TestResolved(t *testing.T) {
	tags := map[string]string{"prod": "1-2", "default": "1-3"}
	for _, c := range []struct{ labels, want map[string]string }{
		{map[string]string{"istio.io/rev": "prod", "team": "a"}, map[string]string{"istio.io/rev": "1-2", "team": "a"}},
		{map[string]string{"istio.io/rev": "1-1"}, map[string]string{"istio.io/rev": "1-1"}},
		{map[string]string{"istio-injection": "enabled"}, map[string]string{"istio.io/rev": "1-3"}},
		{map[string]string{"istio-injection": "enabled", "istio.io/rev": "prod"}, map[string]string{"istio.io/rev": "1-3"}},
		{map[string]string{"istio-injection": "disabled", "istio.io/rev": "prod"}, map[string]string{"istio-injection": "disabled", "istio.io/rev": "prod"}},
		{nil, nil},
	} {
		before := maps.Clone(c.labels)
		if is := resolved(c.labels, tags); !maps.Equal(is, c.want) || !maps.Equal(before, c.labels) {
			t.Errorf("%v is %v, want %v", before, is, c.want)
		}
	}
	enabled := map[string]string{"istio-injection": "enabled"}
	if is := resolved(enabled, nil); !maps.Equal(is, enabled) {
		t.Errorf("without tags: %v", is)
	}
}

// TestAwait: webhooks that exist are kept at once, and others once they are made, at the latest a moment later.
func TestAwait(t *testing.T) {
	var requests, absent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		rw.Header().Set("Content-Type", "application/json")
		if absent.Add(-1) >= 0 {
			rw.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		_, _ = io.WriteString(rw, `{"kind":"MutatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"hooks"}}`)
	}))
	defer server.Close()
	w, err := NewWebhooks(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w.Mutating = "hooks"
	for missing, want := range map[int64]int64{0: 1, 1: 2} {
		requests.Store(0)
		absent.Store(missing)
		if w.await(t.Context()); requests.Load() != want {
			t.Errorf("%d answers that there is none: %d requests, want %d", missing, requests.Load(), want)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	absent.Store(1000)
	w.await(gone) // it returns
}
