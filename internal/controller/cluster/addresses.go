package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotmesh/pilot/internal/api"
)

// WriteAddresses implements addresses.Target. It reads the object first, and the API server refuses to write an object that has changed
// since.
func (s *Statuses) WriteAddresses(ctx context.Context, k api.Key, has, want []api.Allocation) error {
	kind, ok := s.kinds[k.Kind]
	if !ok {
		return fmt.Errorf("objects of kind %s have no addresses", k.Kind)
	}
	for _, at := range s.versions(kind, k.Namespace) {
		u, err := at.Get(ctx, k.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // the object is gone, or this version is not served
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", k, err)
		}
		if !slices.Equal(allocated(u), has) {
			return nil
		}
		list := make([]any, 0, len(want))
		for _, a := range want {
			one := map[string]any{"value": a.Address}
			if a.Host != "" {
				one["host"] = a.Host
			}
			list = append(list, one)
		}
		if err := unstructured.SetNestedSlice(u.Object, list, "status", "addresses"); err != nil {
			return fmt.Errorf("the status of %s: %w", k, err)
		}
		_, err = at.UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: manager})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // it has changed since
		}
		return explainUpdate(err, k, kind)
	}
	return nil
}

// allocated returns the addresses in the status of an object, as package api reads them.
func allocated(u *unstructured.Unstructured) (list []api.Allocation) {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "addresses")
	for _, one := range all {
		fields, _ := one.(map[string]any)
		value, _ := fields["value"].(string)
		host, _ := fields["host"].(string)
		if ip, err := netip.ParseAddr(value); err != nil || ip.Zone() != "" {
			continue
		}
		list = append(list, api.Allocation{Host: strings.ToLower(host), Address: value})
	}
	return list
}
