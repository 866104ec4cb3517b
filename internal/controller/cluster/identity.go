package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// The limit of requests about tokens. Many proxies connect at once when a replica ends.
const (
	reviewQPS   = 200
	reviewBurst = 400
)

// Reviewer asks the API server whose tokens are.
type Reviewer struct {
	client *kubeclient.Creator[*authentication.TokenReview]
}

// NewReviewer returns a reviewer. It sends no request.
func NewReviewer(config *rest.Config) (*Reviewer, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config), "token-review")
	own.QPS, own.Burst = reviewQPS, reviewBurst
	client, err := kubeclient.TokenReviews(own)
	if err != nil {
		return nil, fmt.Errorf("a client for reviews of tokens: %w", err)
	}
	return &Reviewer{client}, nil
}

// The keys under which the API server names the pod to which a token is bound.
const (
	podNameKey = "authentication.kubernetes.io/pod-name"
	podUIDKey  = "authentication.kubernetes.io/pod-uid"
	podNodeKey = "authentication.kubernetes.io/node-name"
)

// Review implements identity.Reviewer.
func (r *Reviewer) Review(ctx context.Context, token string, audiences []string) (identity.Review, error) {
	got, err := r.client.Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return identity.Review{}, errors.New("the role of the control plane may not create tokenreviews (authentication.k8s.io)")
	case err != nil:
		return identity.Review{}, err
	case got.Status.Error != "" || !got.Status.Authenticated:
		return identity.Review{Refusal: got.Status.Error}, nil
	case !slices.ContainsFunc(got.Status.Audiences, func(a string) bool { return slices.Contains(audiences, a) }):
		// An API server that knows no audiences answers without any. A token for it must not count here.
		return identity.Review{Refusal: fmt.Sprintf("it is not for %q", audiences)}, nil
	}
	extra := func(key string) string {
		if values := got.Status.User.Extra[key]; len(values) == 1 {
			return values[0]
		}
		return ""
	}
	return identity.Review{
		User: got.Status.User.Username,
		Pod:  identity.Pod{Name: extra(podNameKey), UID: extra(podUIDKey), Node: extra(podNodeKey)},
	}, nil
}

// SecretStore keeps a self-signed certificate authority in a Secret.
type SecretStore struct {
	client          *kubeclient.Resource[*core.Secret, *core.SecretList]
	namespace, name string
}

// NewSecretStore returns a store. It sends no request.
func NewSecretStore(config *rest.Config, namespace, name string) (*SecretStore, error) {
	client, err := kubeclient.NewCore(rest.AddUserAgent(rest.CopyConfig(config), "certificate-authority"))
	if err != nil {
		return nil, fmt.Errorf("a client for the Secret of the certificate authority: %w", err)
	}
	return &SecretStore{client.Secrets(namespace), namespace, name}, nil
}

// secretType is the type of the Secret, as Istio has it.
const secretType core.SecretType = "istio.io/ca-root"

// Update implements ca.Store. Replicas that begin at the same time have the same root.
func (s *SecretStore) Update(ctx context.Context, update func(map[string][]byte, error) (map[string][]byte, error)) (data map[string][]byte, err error) {
	err = change(ctx, s.client, s.name, func() *core.Secret {
		return &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: s.namespace}, Type: secretType}
	}, func(is *core.Secret) (write bool, err error) {
		if data = nil; len(is.Data) > 0 {
			data = is.Data
		}
		next, err := update(maps.Clone(data), nil)
		if err != nil || next == nil {
			return false, err
		}
		is.Data, data = next, next
		return true, nil
	})
	if err != nil {
		return nil, s.explain(err)
	}
	return data, nil
}

func (s *SecretStore) explain(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("the root of the mesh: the role of the control plane may not get, create and update secrets in %s; grant it, or plug an authority in (cacerts), or switch it off (ENABLE_CA_SERVER=false, --secureGRPCAddr=)", s.namespace)
	}
	return fmt.Errorf("Secret %s/%s: %w", s.namespace, s.name, err)
}
