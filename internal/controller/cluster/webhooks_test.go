package cluster

import (
	"strings"
	"testing"

	registration "k8s.io/api/admissionregistration/v1"
)

// TestWebhookRoots: the roots go into the webhooks of the control plane's namespace without them, and nowhere else; they are never emptied.
func TestWebhookRoots(t *testing.T) {
	roots := "roots"
	w := &Webhooks{Namespace: "mesh", Roots: func() []byte { return []byte(roots) }}
	service := func(namespace, bundle string) registration.WebhookClientConfig {
		return registration.WebhookClientConfig{Service: &registration.ServiceReference{Namespace: namespace}, CABundle: []byte(bundle)}
	}
	url := "https://example.org"
	all := []registration.WebhookClientConfig{service("mesh", ""), service("other", ""), {URL: &url}, service("mesh", "old"), service("mesh", "roots")}
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
