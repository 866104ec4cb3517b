package cluster

import (
	"context"
	"errors"
	"fmt"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// Accesses asks the API server for the permissions of service accounts.
type Accesses struct {
	client *kubeclient.Creator[*authorization.SubjectAccessReview]
}

// NewAccesses returns it. It sends no request.
func NewAccesses(config *rest.Config) (*Accesses, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config), "access-review")
	own.QPS, own.Burst = reviewQPS, reviewBurst
	client, err := kubeclient.AccessReviews(own)
	if err != nil {
		return nil, fmt.Errorf("a client for reviews of access: %w", err)
	}
	return &Accesses{client}, nil
}

// The groups of every service account. The group of the accounts of one namespace is groupAccounts followed by ":" and the namespace.
const (
	groupAccounts      = "system:serviceaccounts"
	groupAuthenticated = "system:authenticated"
)

// MayListSecrets implements permission.Reviewer.
func (a *Accesses) MayListSecrets(ctx context.Context, namespace, account string) (bool, error) {
	got, err := a.client.Create(ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User:               identity.Subject(namespace, account),
		Groups:             []string{groupAccounts, groupAccounts + ":" + namespace, groupAuthenticated},
		ResourceAttributes: &authorization.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "secrets"},
	}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return false, errors.New("the role of the control plane does not have the rule {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}")
	case err != nil:
		return false, fmt.Errorf("the API server cannot be asked: %w", err)
	}
	return got.Status.Allowed && !got.Status.Denied, nil
}
