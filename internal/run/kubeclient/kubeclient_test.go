package kubeclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// must returns the client of a group of the test.
func must[T any](client T, err error) T {
	if err != nil {
		panic(err)
	}
	return client
}

// calls are requests of this package's clients, and the same requests of client-go's clients.
var calls = []struct {
	name   string
	ours   func(ctx context.Context, config *rest.Config) error
	theirs func(ctx context.Context, all kubernetes.Interface) error
}{
	{"get", func(ctx context.Context, config *rest.Config) error {
		_, err := must(NewCore(config)).Secrets("shop").Get(ctx, "a", metav1.GetOptions{ResourceVersion: "7"})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.CoreV1().Secrets("shop").Get(ctx, "a", metav1.GetOptions{ResourceVersion: "7"})
		return err
	}},
	{"list of all namespaces", func(ctx context.Context, config *rest.Config) error {
		_, err := must(NewCore(config)).Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app=a", Limit: 5, TimeoutSeconds: new(int64(9))})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app=a", Limit: 5, TimeoutSeconds: new(int64(9))})
		return err
	}},
	{"watch", func(ctx context.Context, config *rest.Config) error {
		_, err := must(NewEndpointSlices(config)).In("shop").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a"})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.DiscoveryV1().EndpointSlices("shop").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a"})
		return err
	}},
	{"create", func(ctx context.Context, config *rest.Config) error {
		_, err := must(Leases(config, "shop")).Create(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{FieldManager: "m"})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.CoordinationV1().Leases("shop").Create(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{FieldManager: "m"})
		return err
	}},
	{"update", func(ctx context.Context, config *rest.Config) error {
		_, err := must(NewHooks(config)).Mutating().Update(ctx, &admissionregistration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, &admissionregistration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
		return err
	}},
	{"update of a subresource", func(ctx context.Context, config *rest.Config) error {
		_, err := must(SigningRequests(config)).Update(ctx, &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{}, "approval")
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, "a", &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
		return err
	}},
	{"patch", func(ctx context.Context, config *rest.Config) error {
		_, err := must(NewCore(config)).Nodes().Patch(ctx, "a", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{FieldManager: "m", Force: new(true)})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.CoreV1().Nodes().Patch(ctx, "a", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{FieldManager: "m", Force: new(true)})
		return err
	}},
	{"delete", func(ctx context.Context, config *rest.Config) error {
		return must(NewApps(config)).DaemonSets("shop").Delete(ctx, "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("u")})
	}, func(ctx context.Context, all kubernetes.Interface) error {
		return all.AppsV1().DaemonSets("shop").Delete(ctx, "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("u")})
	}},
	{"token of an account", func(ctx context.Context, config *rest.Config) error {
		_, err := must(NewCore(config)).Tokens("shop", "web").Create(ctx, &authentication.TokenRequest{}, metav1.CreateOptions{})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.CoreV1().ServiceAccounts("shop").CreateToken(ctx, "web", &authentication.TokenRequest{}, metav1.CreateOptions{})
		return err
	}},
	{"review of a token", func(ctx context.Context, config *rest.Config) error {
		_, err := must(TokenReviews(config)).Create(ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: "t"}}, metav1.CreateOptions{})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: "t"}}, metav1.CreateOptions{})
		return err
	}},
	{"review of a permission", func(ctx context.Context, config *rest.Config) error {
		_, err := must(OwnAccessReviews(config)).Create(ctx, &authorization.SelfSubjectAccessReview{}, metav1.CreateOptions{})
		return err
	}, func(ctx context.Context, all kubernetes.Interface) error {
		_, err := all.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorization.SelfSubjectAccessReview{}, metav1.CreateOptions{})
		return err
	}},
	{"log", func(ctx context.Context, config *rest.Config) error {
		return must(NewCore(config)).Log("shop", "a", &core.PodLogOptions{Container: "c", TailLines: new(int64(3))}).Do(ctx).Error()
	}, func(ctx context.Context, all kubernetes.Interface) error {
		return all.CoreV1().Pods("shop").GetLogs("a", &core.PodLogOptions{Container: "c", TailLines: new(int64(3))}).Do(ctx).Error()
	}},
}

// TestLikeClientGo checks that requests, and errors of the API server, are the ones of client-go's clients.
func TestLikeClientGo(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, fmt.Sprintf("%s %s %q %q", r.Method, r.URL, r.Header, body))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "message": "another version is newer", "code": 409}`)
	}))
	defer server.Close()
	for _, media := range []string{"", "application/json"} {
		config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: media}}
		all := must(kubernetes.NewForConfig(config))
		for _, c := range calls {
			requests = nil
			ours, theirs := c.ours(t.Context(), config), c.theirs(t.Context(), all)
			if ours == nil || theirs == nil || ours.Error() != theirs.Error() {
				t.Errorf("%s, content type %q: the error is %v, of client-go %v", c.name, media, ours, theirs)
			}
			if len(requests) != 2 || requests[0] != requests[1] {
				t.Errorf("%s, content type %q: the requests are\n%q", c.name, media, requests)
			}
		}
	}
}
