package cluster

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

const (
	// policiesPeriod is how often changes of the last good versions of policies are written, and policiesAnew how often all ConfigMaps are
	// compared, because others can change them.
	policiesPeriod = time.Second
	policiesAnew   = 5 * time.Minute
)

// Policies writes the last good versions of access policies to ConfigMaps in the namespace of the control plane. All replicas read
// them before they are ready.
type Policies struct {
	maps *kubeclient.Resource[*core.ConfigMap, *core.ConfigMapList]
	// Map returns the name of the ConfigMap of a part, and Key is the key in it.
	Map func(part int) string
	Key string
	// Book has the versions to be written, once it is complete.
	Book *kept.Book
	Log  *slog.Logger
}

// NewPolicies returns a writer to an API server. It sends no request.
func NewPolicies(config *rest.Config, namespace string) (*Policies, error) {
	client, err := kubeclient.NewCore(rest.AddUserAgent(rest.CopyConfig(config), "policies"))
	if err != nil {
		return nil, fmt.Errorf("a client for the last good versions of policies: %w", err)
	}
	return &Policies{maps: client.ConfigMaps(namespace)}, nil
}

// Run writes changed parts until ctx ends. At first, and from time to time, it compares everything.
func (p *Policies) Run(ctx context.Context) {
	for i := range kept.Parts {
		p.Book.Retry(i)
	}
	parts, changes := map[int][]*api.Object{}, map[int]int{} // the versions of each part, and how many times they have changed
	writes := schedule.Writes[int, int]{
		Look: func(context.Context) (iter.Seq2[int, int], error) {
			for _, i := range p.Book.Changed() {
				parts[i] = p.Book.Take(i)
				changes[i]++
			}
			return maps.All(changes), nil
		},
		Compare: cmp.Compare[int], Pauses: schedule.Pauses{First: policiesPeriod, Longest: longestPause}, Period: policiesPeriod, Repeat: policiesAnew,
		Write: func(ctx context.Context, part, _ int) (known bool, err error) {
			return true, p.write(ctx, p.Map(part), parts[part])
		},
		Failed: func(_ int, err error) {
			p.Log.Warn("the last good versions of access policies cannot be kept; it is tried again, and refused policies deny more than before after a restart", "error", err)
		},
	}
	writes.Run(ctx)
}

// write makes a ConfigMap have some versions. One that would have none need not exist.
func (p *Policies) write(ctx context.Context, name string, versions []*api.Object) error {
	data, left, err := kept.Encode(versions)
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	if len(left) > 0 {
		p.Log.Warn("there is no room for the last good versions of some access policies; after a restart they deny if their present version is refused; make fewer or smaller policies",
			"configmap", name, "policies", len(left), "first", left[0].String())
	}
	return changeMap(ctx, p.maps, name, nil, "Role", "get, list, watch, update", func(is *core.ConfigMap) bool {
		if is.ResourceVersion == "" && len(versions) == 0 || bytes.Equal(is.BinaryData[p.Key], data) {
			return false
		}
		is.BinaryData = map[string][]byte{p.Key: data}
		return true
	})
}
