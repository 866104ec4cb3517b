package cluster

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Update implements bundles.Keeper. The API server refuses a change of a ConfigMap that another replica has changed; then Update begins again.
func (b *Bundles) Update(ctx context.Context, change func(kept []byte) []byte) error {
	for range attempts {
		err := b.try(ctx, change)
		switch {
		case err == nil:
			return nil
		case apierrors.IsForbidden(err):
			return fmt.Errorf("%w; add the rule {apiGroups: [\"\"], resources: [configmaps], resourceNames: [%s], verbs: [get, update]} and one to create configmaps to the Role of the control plane", err, bundlesMap)
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
			return fmt.Errorf("ConfigMap %s: %w", bundlesMap, err)
		}
	}
	return fmt.Errorf("ConfigMap %s changes again and again", bundlesMap)
}

// try makes one attempt.
func (b *Bundles) try(ctx context.Context, change func(kept []byte) []byte) error {
	is, err := b.maps.Get(ctx, bundlesMap, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	was := ""
	if !missing {
		was = is.Data[b.key]
	}
	next := string(change([]byte(was)))
	switch {
	case next == was:
		return nil
	case missing:
		_, err = b.maps.Create(ctx, &core.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: bundlesMap}, Data: map[string]string{b.key: next},
		}, metav1.CreateOptions{FieldManager: manager})
		return err
	case is.Data == nil:
		is.Data = map[string]string{}
	}
	if is.Data[b.key] = next; next == "" {
		delete(is.Data, b.key)
	}
	_, err = b.maps.Update(ctx, is, metav1.UpdateOptions{FieldManager: manager})
	return err
}
