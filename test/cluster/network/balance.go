package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// balance gives every service of type LoadBalancer an address of each of its families, and takes back the address of one
// that is no longer of that type. The status of services is the only record of the addresses given.
func (n *Network) balance(ctx context.Context, services []*core.Service) error {
	taken := map[netip.Addr]bool{}
	for _, s := range services {
		for _, i := range s.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(i.IP); err == nil && s.Spec.Type == core.ServiceTypeLoadBalancer {
				taken[a] = true
			}
		}
	}
	services = slices.SortedFunc(slices.Values(services), func(a, b *core.Service) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for _, s := range services {
		want, err := n.ingress(s, taken)
		if err != nil {
			n.o.Log.Error("no LoadBalancer address", "service", s.Namespace+"/"+s.Name, "error", err)
			continue
		}
		if len(want) == len(s.Status.LoadBalancer.Ingress) {
			continue // addresses stay as they are as long as their number is right
		}
		changed := s.DeepCopy()
		changed.Status.LoadBalancer.Ingress = want
		_, err = n.o.Client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, changed, meta.UpdateOptions{})
		if err != nil && !errors.IsConflict(err) && !errors.IsNotFound(err) { // those are followed by an event
			return fmt.Errorf("writing the LoadBalancer address of %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return nil
}

// ingress is what a service's status should list.
func (n *Network) ingress(s *core.Service, taken map[netip.Addr]bool) ([]core.LoadBalancerIngress, error) {
	if s.Spec.Type != core.ServiceTypeLoadBalancer || s.Spec.LoadBalancerClass != nil {
		return nil, nil // another class is for another controller
	}
	has := s.Status.LoadBalancer.Ingress
	if len(has) == max(1, len(s.Spec.IPFamilies)) {
		return has, nil
	}
	families := s.Spec.IPFamilies
	if len(families) == 0 {
		families = []core.IPFamily{core.IPv4Protocol}
	}
	var want []core.LoadBalancerIngress
	mode := core.LoadBalancerIPModeVIP
	for _, f := range families {
		a, err := n.free(f == core.IPv6Protocol, s.Spec.LoadBalancerIP, taken)
		if err != nil {
			return nil, err
		}
		taken[a] = true
		want = append(want, core.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	return want, nil
}

// free returns the address that was asked for, if it can be had, or the first that is free.
func (n *Network) free(six bool, wish string, taken map[netip.Addr]bool) (netip.Addr, error) {
	for _, p := range n.o.Pools {
		if p.Addr().Is6() != six {
			continue
		}
		if a, err := netip.ParseAddr(wish); err == nil && p.Contains(a) {
			if taken[a] {
				return a, fmt.Errorf("spec.loadBalancerIP %s belongs to another service", a)
			}
			return a, nil
		}
		for a := p.Addr().Next(); p.Contains(a); a = a.Next() {
			if !taken[a] {
				return a, nil
			}
		}
		return netip.Addr{}, fmt.Errorf("all addresses of %s are taken", p)
	}
	return netip.Addr{}, fmt.Errorf("the cluster has no LoadBalancer addresses of that family (IPv6 %v)", six)
}
