package cluster

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/controller/schedule"
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
	// longestPause is the longest pause after failures of this package's writers.
	longestPause = time.Minute
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

// Run writes the roots until ctx ends. Lists of revoked certificates are written if there are any, and emptied when there are none any more.
func (r *Roots) Run(ctx context.Context) {
	revoked := false // there was a list at an earlier look
	writes := schedule.Writes[target, string]{
		Look: func(ctx context.Context) (iter.Seq2[target, string], error) {
			namespaces, err := r.Namespaces(ctx)
			all, roots, list := map[target]string{}, string(r.PEM()), string(r.Revoked())
			revoked = revoked || list != ""
			for _, namespace := range namespaces {
				all[target{namespace, RootsMap, rootsKey}] = roots
				if revoked {
					all[target{namespace, RevokedMap, revokedKey}] = list
				}
			}
			return maps.All(all), err
		},
		Compare: compareTargets, Pauses: schedule.Pauses{First: rootsPeriod, Longest: longestPause}, Period: rootsPeriod, Repeat: rootsAnew,
		Write: func(ctx context.Context, t target, content string) (known bool, err error) {
			return true, r.write(ctx, t, content)
		},
		Failed: func(t target, err error) {
			r.Log.Warn("the roots of the mesh cannot be written into all namespaces; it is tried again", "namespace", t.namespace, "error", err)
		},
	}
	writes.Run(ctx)
}

// target is one ConfigMap, with the key in it that is written.
type target struct{ namespace, name, key string }

func compareTargets(a, b target) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// write makes a ConfigMap have a content.
func (r *Roots) write(ctx context.Context, t target, content string) error {
	err := changeMap(ctx, r.client.ConfigMaps(t.namespace), t.name, map[string]string{"istio.io/config": "true"}, "ClusterRole", "get, update",
		func(is *core.ConfigMap) bool { return setText(is, t.key, content) })
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, core.NamespaceTerminatingCause) {
		return nil // the namespace goes: the next look shows it
	}
	return err
}
