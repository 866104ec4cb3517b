package cluster

import (
	"context"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotmesh/pilot/internal/api"
)

// WriteLoadBalancer implements ingress.Target.
func (s *Statuses) WriteLoadBalancer(ctx context.Context, k api.Key, addresses []string) (written bool, err error) {
	written, err = s.change(ctx, k, func(u *unstructured.Unstructured) (bool, error) { return setLoadBalancer(u, addresses) })
	return written, unlessConflict(err)
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
