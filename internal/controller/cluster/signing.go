package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// The limit of requests about certificates. Many proxies start at once.
const (
	signingQPS   = 200
	signingBurst = 400
)

// Times of a request for a certificate.
const (
	// shortestSigned is the shortest time that the API server lets a request ask for.
	shortestSigned = 10 * time.Minute
	// deleteWithin bounds how long the deletion of a request may take after its caller has gone.
	deleteWithin = 5 * time.Second
)

// SigningRequests has certificates signed by signers of the cluster (certificates.k8s.io). It approves its requests itself, because the
// control plane has authenticated the proxy.
type SigningRequests struct {
	client *kubeclient.Resource[*certificates.CertificateSigningRequest, *certificates.CertificateSigningRequestList]
}

// NewSigningRequests returns a client. It sends no request.
func NewSigningRequests(config *rest.Config) (*SigningRequests, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config), "certificate-requests")
	own.QPS, own.Burst = signingQPS, signingBurst
	client, err := kubeclient.SigningRequests(own)
	if err != nil {
		return nil, fmt.Errorf("a client for requests for certificates: %w", err)
	}
	return &SigningRequests{client}, nil
}

// Obtain implements ca.SigningRequests. The request is deleted in the end, whatever comes of it.
func (s *SigningRequests) Obtain(ctx context.Context, signer, request string, valid time.Duration) ([]byte, error) {
	seconds := int32(max(valid, shortestSigned) / time.Second)
	q, err := s.client.Create(ctx, &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-workload-"},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: []byte(request), SignerName: signer, ExpirationSeconds: &seconds,
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageKeyEncipherment, certificates.UsageServerAuth, certificates.UsageClientAuth},
		},
	}, metav1.CreateOptions{FieldManager: manager})
	if err != nil {
		return nil, explainSigning("create certificatesigningrequests", signer, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteWithin)
		defer cancel()
		_ = s.client.Delete(ctx, q.Name, metav1.DeleteOptions{}) // Kubernetes deletes requests that are old
	}()
	q.Status.Conditions = append(q.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: certificates.CertificateApproved, Status: core.ConditionTrue, Reason: "WorkloadIdentity",
		Message: "The control plane of the mesh has checked the identity of the workload.", LastUpdateTime: metav1.Now(),
	})
	if q, err = s.client.Update(ctx, q, metav1.UpdateOptions{FieldManager: manager}, "approval"); err != nil {
		return nil, explainSigning("update certificatesigningrequests/approval or approve signers", signer, err)
	}
	return s.wait(ctx, q, signer)
}

// wait waits until a request is signed.
func (s *SigningRequests) wait(ctx context.Context, q *certificates.CertificateSigningRequest, signer string) ([]byte, error) {
	w, err := s.client.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", q.Name).String(), ResourceVersion: q.ResourceVersion,
	})
	if err != nil {
		return nil, explainSigning("watch certificatesigningrequests", signer, err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the signer %s has not signed in time; look whether it runs", signer)
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error || e.Type == watch.Deleted {
				return nil, fmt.Errorf("the request for a certificate by %s was lost; it is tried again", signer)
			}
			now, ok := e.Object.(*certificates.CertificateSigningRequest)
			if !ok {
				continue
			}
			for _, c := range now.Status.Conditions {
				if c.Type == certificates.CertificateFailed || c.Type == certificates.CertificateDenied {
					return nil, fmt.Errorf("the signer %s refuses: %s: %s", signer, c.Reason, c.Message)
				}
			}
			if len(now.Status.Certificate) > 0 {
				return now.Status.Certificate, nil
			}
		}
	}
}

func explainSigning(right, signer string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("a certificate by the signer %s: the role of the control plane may not %s; apply manifests/signer.yaml", signer, right)
	}
	return fmt.Errorf("a certificate by the signer %s: %w", signer, err)
}

// PluggedSecret is a Secret into which a certificate authority may be plugged.
type PluggedSecret struct {
	client          *kubeclient.Resource[*core.Secret, *core.SecretList]
	namespace, name string
}

// NewPluggedSecret returns the Secret of a name. It sends no request.
func NewPluggedSecret(config *rest.Config, namespace, name string) (*PluggedSecret, error) {
	client, err := kubeclient.NewCore(rest.AddUserAgent(rest.CopyConfig(config), "certificate-authority"))
	if err != nil {
		return nil, fmt.Errorf("a client for the Secret of a plugged-in certificate authority: %w", err)
	}
	return &PluggedSecret{client.Secrets(namespace), namespace, name}, nil
}

// Files implements ca.Plug.
func (s *PluggedSecret) Files(ctx context.Context) (map[string][]byte, error) {
	is, err := s.client.Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no such Secret: %w", fs.ErrNotExist)
	case apierrors.IsForbidden(err):
		return nil, errors.New("the role of the control plane may not get secrets, for this one; apply manifests/rbac.yaml")
	case err != nil:
		return nil, err
	}
	return is.Data, nil
}

// String names the Secret.
func (s *PluggedSecret) String() string { return "Secret " + s.namespace + "/" + s.name }
