package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotmesh/pilot/internal/api"
)

// WriteLoadBalancer implements ingress.Target. It reads the object first, so a status that the object has already costs one request.
func (s *Statuses) WriteLoadBalancer(ctx context.Context, k api.Key, addresses []string) (written bool, err error) {
	kind, ok := s.kinds[k.Kind]
	if !ok {
		return false, fmt.Errorf("objects of kind %s have no load balancer", k.Kind)
	}
	for _, at := range s.versions(kind, k.Namespace) {
		u, err := at.Get(ctx, k.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read %s: %w", k, err)
		}
		changed, err := setLoadBalancer(u, addresses)
		if err != nil {
			return false, fmt.Errorf("the status of %s: %w", k, err)
		}
		if !changed {
			return true, nil
		}
		_, err = at.UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: manager})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return false, nil // it has changed since it was read
		}
		return err == nil, explainUpdate(err, k, kind)
	}
	return false, nil
}

// setLoadBalancer puts addresses into the status of an Ingress. It reports whether the status had others; the order does not count.
func setLoadBalancer(u *unstructured.Unstructured, addresses []string) (changed bool, err error) {
	old, _, err := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress")
	if err != nil {
		return false, err
	}
	had := make([]string, 0, len(old))
	for _, one := range old {
		fields, _ := one.(map[string]any)
		ip, _ := fields["ip"].(string)
		name, _ := fields["hostname"].(string)
		had = append(had, ip+name)
	}
	slices.Sort(had)
	want := slices.Sorted(slices.Values(addresses))
	if slices.Equal(had, want) {
		return false, nil
	}
	list := make([]any, 0, len(want))
	for _, address := range want {
		field := "hostname"
		if _, err := netip.ParseAddr(address); err == nil {
			field = "ip"
		}
		list = append(list, map[string]any{field: address})
	}
	if len(list) == 0 {
		unstructured.RemoveNestedField(u.Object, "status", "loadBalancer", "ingress")
		return true, nil
	}
	return true, unstructured.SetNestedSlice(u.Object, list, "status", "loadBalancer", "ingress")
}
