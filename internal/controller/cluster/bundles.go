package cluster

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// bundlesMap is the ConfigMap, in the namespace of the control plane, with the last good roots of SPIFFE bundles. Each revision has a key in it,
// because revisions may have different mesh configurations.
const bundlesMap = "pilot-bundles"

// Bundles keeps the last good roots of SPIFFE bundles in a ConfigMap. All replicas read and write them.
type Bundles struct {
	maps *kubeclient.Resource[*core.ConfigMap, *core.ConfigMapList]
	key  string
}

// NewBundles returns a keeper for the replicas of a revision. It sends no request.
func NewBundles(config *rest.Config, namespace, revision string) (*Bundles, error) {
	client, err := kubeclient.NewCore(rest.AddUserAgent(rest.CopyConfig(config), "trust-bundles"))
	if err != nil {
		return nil, fmt.Errorf("a client for the last good roots of SPIFFE bundles: %w", err)
	}
	return &Bundles{client.ConfigMaps(namespace), revision + ".json"}, nil
}

// Update implements bundles.Keeper.
func (b *Bundles) Update(ctx context.Context, update func(kept []byte) []byte) error {
	return changeMap(ctx, b.maps, bundlesMap, nil, "Role", "get, update", func(is *core.ConfigMap) bool {
		changed := setText(is, b.key, string(update([]byte(is.Data[b.key]))))
		if is.Data[b.key] == "" {
			delete(is.Data, b.key)
		}
		return changed
	})
}
