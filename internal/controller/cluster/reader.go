package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReaderAccount are the objects with which a control plane may read a remote cluster: a service account and its permissions. %[1]s is the
// namespace, and %[2]s the name of the account.
const ReaderAccount = `apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[2]s-%[1]s}
rules:
- apiGroups: [""]
  resources: [services, pods, nodes, namespaces]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[2]s-%[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[2]s-%[1]s}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]
`

// fillAgain is the pause between two looks at a Secret that the cluster fills with a token.
const fillAgain = 200 * time.Millisecond

// ReaderToken returns a token of a service account, and the roots of the API server if the cluster states them. A token that is valid for ever
// is in a Secret of the account, which is created if it does not exist; with a duration, a token that expires is issued.
func (m *Machines) ReaderToken(ctx context.Context, namespace, account string, valid time.Duration) (token, roots []byte, err error) {
	_, err = m.core.ServiceAccounts(namespace).Get(ctx, account, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("there is no service account %s in the namespace %s of the remote cluster; create it with its permissions (pilotctl create-remote-secret --print-account | kubectl apply -f -), "+
			"or name another one with --service-account: %w", account, namespace, err)
	case err != nil:
		return nil, nil, readerError("reading", "get serviceaccounts", namespace, account, err)
	}
	if valid > 0 {
		seconds := int64(valid / time.Second)
		answer, err := m.core.Tokens(namespace, account).Create(ctx, &authentication.TokenRequest{
			Spec: authentication.TokenRequestSpec{ExpirationSeconds: &seconds},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, nil, readerError("a token of", "create serviceaccounts/token", namespace, account, err)
		}
		return []byte(answer.Status.Token), nil, nil
	}
	return m.lastingToken(ctx, namespace, account)
}

// lastingToken returns the token of the account's Secret.
func (m *Machines) lastingToken(ctx context.Context, namespace, account string) (token, roots []byte, err error) {
	secrets, name := m.core.Secrets(namespace), account+"-istio-remote-secret-token"
	s, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s, err = secrets.Create(ctx, &core.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{core.ServiceAccountNameKey: account}}, Type: core.SecretTypeServiceAccountToken,
		}, metav1.CreateOptions{})
	}
	for {
		switch {
		case err != nil:
			return nil, nil, readerError("the Secret "+name+" with a token of", "get and create secrets", namespace, account, err)
		case s.Type != core.SecretTypeServiceAccountToken || s.Annotations[core.ServiceAccountNameKey] != account:
			return nil, nil, fmt.Errorf("the Secret %s in the namespace %s is not of the service account %s; remove it, or name a duration with --token-duration", name, namespace, account)
		case len(s.Data[core.ServiceAccountTokenKey]) > 0:
			return s.Data[core.ServiceAccountTokenKey], s.Data[core.ServiceAccountRootCAKey], nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("the cluster has not written a token into the Secret %s in the namespace %s; does its controller manager issue tokens? Name a duration with --token-duration: %w",
				name, namespace, ctx.Err())
		case <-time.After(fillAgain):
		}
		if again, failed := secrets.Get(ctx, name, metav1.GetOptions{}); ctx.Err() == nil {
			s, err = again, failed
		}
	}
}

// readerError says what failed, and which permission is needed.
func readerError(what, permission, namespace, account string, err error) error {
	if apierrors.IsForbidden(err) {
		err = errors.Join(err, fmt.Errorf("your account needs the permission to %s in the namespace %s of the remote cluster", permission, namespace))
	}
	return fmt.Errorf("%s the service account %s/%s: %w", what, namespace, account, err)
}
