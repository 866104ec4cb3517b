package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	objects "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// RootsMap is the ConfigMap with the roots of the mesh, which the injector mounts into pods.
const RootsMap = "istio-ca-root-cert"

const (
	rootsKey = "root-cert.pem"
	// rootsPeriod is how often namespaces and roots are looked at, and rootsAnew how often ConfigMaps that somebody may have changed are.
	rootsPeriod = 2 * time.Second
	rootsAnew   = 5 * time.Minute
)

// Roots writes the roots of the mesh into each namespace, so that proxies can check that it is the control plane that they call.
type Roots struct {
	client objects.CoreV1Interface
	// Namespaces returns the namespaces of the cluster.
	Namespaces func(ctx context.Context) ([]string, error)
	// PEM returns the roots.
	PEM func() []byte
	Log *slog.Logger
}

// NewRoots returns a writer to an API server. It sends no request.
func NewRoots(config *rest.Config) (*Roots, error) {
	client, err := objects.NewForConfig(rest.AddUserAgent(rest.CopyConfig(config), "roots"))
	if err != nil {
		return nil, fmt.Errorf("a client for the roots of the mesh: %w", err)
	}
	return &Roots{client: client}, nil
}

// Run writes the roots until ctx ends.
func (r *Roots) Run(ctx context.Context) {
	written, since := map[string]string{}, time.Now()
	again := time.NewTicker(rootsPeriod)
	defer again.Stop()
	failed := ""
	for {
		if time.Since(since) > rootsAnew {
			clear(written)
			since = time.Now()
		}
		reason := ""
		if err := r.write(ctx, written); err != nil && ctx.Err() == nil {
			reason = err.Error()
		}
		if reason != failed && reason != "" {
			r.Log.Warn("the roots of the mesh cannot be written into all namespaces; it is tried again", "error", reason)
		}
		failed = reason
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// write writes what is not written yet. A namespace that refuses does not hold back the others.
func (r *Roots) write(ctx context.Context, written map[string]string) (last error) {
	namespaces, err := r.Namespaces(ctx)
	if err != nil {
		return err
	}
	roots := string(r.PEM())
	for _, namespace := range namespaces {
		if written[namespace] == roots {
			continue
		}
		if err := r.writeOne(ctx, namespace, roots); err != nil {
			last = fmt.Errorf("ConfigMap %s/%s: %w", namespace, RootsMap, err)
			continue
		}
		written[namespace] = roots
	}
	return last
}

func (r *Roots) writeOne(ctx context.Context, namespace, roots string) error {
	maps := r.client.ConfigMaps(namespace)
	is, err := maps.Get(ctx, RootsMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(ctx, &core.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: RootsMap, Namespace: namespace, Labels: map[string]string{"istio.io/config": "true"}},
			Data:       map[string]string{rootsKey: roots},
		}, metav1.CreateOptions{FieldManager: manager})
	case err != nil:
	case is.Data[rootsKey] != roots:
		if is.Data == nil {
			is.Data = map[string]string{}
		}
		is.Data[rootsKey] = roots
		_, err = maps.Update(ctx, is, metav1.UpdateOptions{FieldManager: manager})
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; add the rule {apiGroups: [\"\"], resources: [configmaps], resourceNames: [%s], verbs: [get, update]} and one to create configmaps to the ClusterRole of the control plane", err, RootsMap)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, core.NamespaceTerminatingCause):
		return nil // the namespace goes, or somebody else writes: the next look shows it
	}
	return err
}
