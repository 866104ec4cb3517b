package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

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
	var compared time.Time
	keepWriting(ctx, policiesPeriod, p.Log, "the last good versions of access policies cannot be kept; it is tried again, and refused policies deny more than before after a restart", func() error {
		if !p.Book.IsComplete() {
			return nil
		}
		if time.Since(compared) > policiesAnew {
			compared = time.Now()
			for i := range kept.Parts {
				p.Book.Retry(i)
			}
		}
		return p.write(ctx)
	})
}

// write writes the parts that have changed. A part that cannot be written holds back no other.
func (p *Policies) write(ctx context.Context) (last error) {
	for _, i := range p.Book.Changed() {
		versions := p.Book.Take(i)
		data, left, err := kept.Encode(versions)
		if err == nil {
			err = p.writePart(ctx, i, data, len(versions) == 0)
		}
		if err != nil {
			p.Book.Retry(i)
			last = fmt.Errorf("ConfigMap %s: %w", p.Map(i), err)
		}
		if len(left) > 0 {
			p.Log.Warn("there is no room for the last good versions of some access policies; after a restart they deny if their present version is refused; make fewer or smaller policies",
				"configmap", p.Map(i), "policies", len(left), "first", left[0].String())
		}
	}
	return last
}

// writePart makes a ConfigMap have some bytes. One that would have no versions need not exist.
func (p *Policies) writePart(ctx context.Context, i int, data []byte, empty bool) error {
	name := p.Map(i)
	is, err := p.maps.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && empty:
		return nil
	case apierrors.IsNotFound(err):
		_, err = p.maps.Create(ctx, &core.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: map[string][]byte{p.Key: data},
		}, metav1.CreateOptions{FieldManager: manager})
	case err != nil:
	case !bytes.Equal(is.BinaryData[p.Key], data):
		is.BinaryData = map[string][]byte{p.Key: data}
		_, err = p.maps.Update(ctx, is, metav1.UpdateOptions{FieldManager: manager}) // which fails if the ConfigMap has changed since
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; add the rule {apiGroups: [\"\"], resources: [configmaps], resourceNames: [%s], verbs: [get, list, watch, update]} and one to create configmaps to the Role of the control plane", err, name)
	}
	return err
}
