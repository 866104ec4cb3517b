package kube

import (
	"cmp"
	"net/netip"
)

// ServiceAddress is an address of a Service.
type ServiceAddress struct {
	netip.Addr
	Cluster, Namespace, Name string
}

// Compare orders by address, then by Service.
func (a ServiceAddress) Compare(o ServiceAddress) int {
	return cmp.Or(a.Addr.Compare(o.Addr), cmp.Compare(a.Cluster, o.Cluster), cmp.Compare(a.Namespace, o.Namespace), cmp.Compare(a.Name, o.Name))
}

// AppendTo appends an unambiguous form.
func (a ServiceAddress) AppendTo(b []byte) []byte {
	b = append(a.Addr.AppendTo(b), 0)
	for _, s := range []string{a.Cluster, a.Namespace, a.Name} {
		b = append(append(b, s...), 0)
	}
	return b
}
