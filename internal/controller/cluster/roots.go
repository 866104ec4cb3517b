package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// ConfigMaps with the roots of the mesh, and with the lists of certificates that a plugged-in authority has revoked, if there are any. The
// injector mounts them into pods.
const (
	RootsMap   = "istio-ca-root-cert"
	RevokedMap = "istio-ca-crl"
)

const (
	rootsKey   = "root-cert.pem"
	revokedKey = "ca-crl.pem"
	// rootsPeriod is how often namespaces and roots are checked, and rootsAnew how often the ConfigMaps are, which other clients may change.
	rootsPeriod = 2 * time.Second
	rootsAnew   = 5 * time.Minute
)

// Roots writes the roots of the mesh into each namespace, so that proxies can check that it is the control plane that they call.
type Roots struct {
	client *kubeclient.Core
	// Namespaces returns the namespaces of the cluster.
	Namespaces func(ctx context.Context) ([]string, error)
	// PEM returns the roots, and Revoked the lists of revoked certificates.
	PEM, Revoked func() []byte
	Log          *slog.Logger
}

// NewRoots returns a writer to an API server. It sends no request.
func NewRoots(config *rest.Config) (*Roots, error) {
	client, err := kubeclient.NewCore(rest.AddUserAgent(rest.CopyConfig(config), "roots"))
	if err != nil {
		return nil, fmt.Errorf("a client for the roots of the mesh: %w", err)
	}
	return &Roots{client: client}, nil
}

// Run writes the roots until ctx ends.
func (r *Roots) Run(ctx context.Context) {
	written, since := map[target]string{}, time.Now()
	keepWriting(ctx, rootsPeriod, r.Log, "the roots of the mesh cannot be written into all namespaces; it is tried again", func() error {
		if time.Since(since) > rootsAnew {
			clear(written)
			since = time.Now()
		}
		return r.write(ctx, written)
	})
}

// keepWriting calls write at once and at intervals until ctx ends. It logs an error once, until write succeeds or fails with another one.
func keepWriting(ctx context.Context, period time.Duration, log *slog.Logger, message string, write func() error) {
	again := time.NewTicker(period)
	defer again.Stop()
	failed := ""
	for {
		reason := ""
		if err := write(); err != nil && ctx.Err() == nil {
			reason = err.Error()
		}
		if reason != failed && reason != "" {
			log.Warn(message, "error", reason) //nolint:sloglint // the callers have constants
		}
		failed = reason
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// target is one ConfigMap, with the key in it that is written.
type target struct{ namespace, name, key string }

// write writes the ConfigMaps that are not up to date. A namespace whose ConfigMap cannot be written does not hold back the
// others. Lists of revoked certificates are written if there are any, and emptied when there are none any more.
func (r *Roots) write(ctx context.Context, written map[target]string) (last error) {
	namespaces, err := r.Namespaces(ctx)
	if err != nil {
		return err
	}
	roots, revoked := string(r.PEM()), string(r.Revoked())
	for _, namespace := range namespaces {
		for t, content := range map[target]string{{namespace, RootsMap, rootsKey}: roots, {namespace, RevokedMap, revokedKey}: revoked} {
			if was, known := written[t]; was == content && (known || content == "") {
				continue
			}
			if err := r.writeOne(ctx, t, content); err != nil {
				last = fmt.Errorf("ConfigMap %s/%s: %w", namespace, t.name, err)
				continue
			}
			written[t] = content
		}
	}
	return last
}

func (r *Roots) writeOne(ctx context.Context, t target, content string) error {
	maps := r.client.ConfigMaps(t.namespace)
	is, err := maps.Get(ctx, t.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(ctx, &core.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: t.name, Namespace: t.namespace, Labels: map[string]string{"istio.io/config": "true"}},
			Data:       map[string]string{t.key: content},
		}, metav1.CreateOptions{FieldManager: manager})
	case err != nil:
	case is.Data[t.key] != content:
		if is.Data == nil {
			is.Data = map[string]string{}
		}
		is.Data[t.key] = content
		_, err = maps.Update(ctx, is, metav1.UpdateOptions{FieldManager: manager})
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; add the rule {apiGroups: [\"\"], resources: [configmaps], resourceNames: [%s], verbs: [get, update]} and one to create configmaps to the ClusterRole of the control plane", err, t.name)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, core.NamespaceTerminatingCause):
		return nil // the namespace goes, or another client writes: the next look shows it
	}
	return err
}
