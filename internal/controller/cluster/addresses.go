package cluster

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotmesh/pilot/internal/api"
)

// WriteAddresses implements addresses.Target.
func (s *Statuses) WriteAddresses(ctx context.Context, k api.Key, has, want []api.Allocation) error {
	_, err := s.change(ctx, k, func(u *unstructured.Unstructured) (bool, error) {
		if !slices.Equal(allocated(u), has) {
			return false, nil
		}
		list := make([]any, 0, len(want))
		for _, a := range want {
			one := map[string]any{"value": a.Address}
			if a.Host != "" {
				one["host"] = a.Host
			}
			list = append(list, one)
		}
		return true, unstructured.SetNestedSlice(u.Object, list, "status", "addresses")
	})
	return unlessConflict(err)
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
