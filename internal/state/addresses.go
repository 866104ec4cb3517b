package state

import (
	"bytes"
	"cmp"
	"net/netip"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Holder is a ServiceEntry that uses an address.
type Holder struct {
	// Allocated is true if the address is one of status.addresses, and false if the author of the object names it.
	Allocated bool
	selected.AgeKey
}

// Compare orders by age, and for one object its named address before the allocated one.
func (h Holder) Compare(o Holder) int {
	return cmp.Or(h.AgeKey.Compare(o.AgeKey), bytes.Compare(flag(h.Allocated), flag(o.Allocated)))
}

// AppendTo appends an unambiguous form.
func (h Holder) AppendTo(b []byte) []byte {
	return h.AgeKey.AppendTo(append(b, flag(h.Allocated)...))
}

func (t *Tables) defineAddresses() {
	ranges := t.Ranges()
	named := func(o *api.Object, add func(netip.Prefix)) {
		for _, text := range o.Spec.(*networking.ServiceEntry).GetAddresses() {
			if block, err := netip.ParsePrefix(text); err == nil && ranges.Has(block) {
				add(block.Masked())
			} else if ip, err := netip.ParseAddr(text); err == nil && ranges.Has(netip.PrefixFrom(ip, ip.BitLen())) {
				add(netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	t.AddressHolders = store.NewIndex(t.Objects, "addressHolders", func(k api.Key, o *api.Object, add func(netip.Addr, Holder)) {
		if k.Kind != api.KindServiceEntry {
			return
		}
		at := selected.AgeKey{Created: age(o), Key: k}
		named(o, func(block netip.Prefix) {
			if block.IsSingleIP() {
				add(block.Addr(), Holder{false, at})
			}
		})
		for _, a := range o.Allocated {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				add(ip, Holder{true, at})
			}
		}
	})
	t.TakenIn = store.NewIndex(t.Objects, "takenIn", func(k api.Key, o *api.Object, add func(netip.Prefix, mesh.AddressBlock)) {
		if k.Kind != api.KindServiceEntry {
			return
		}
		take := func(ip netip.Addr) {
			if section, ok := ranges.SectionOf(ip); ok {
				add(section, mesh.AddressBlock{Prefix: netip.PrefixFrom(ip, ip.BitLen())})
			}
		}
		named(o, func(block netip.Prefix) {
			if block.IsSingleIP() {
				take(block.Addr())
			}
		})
		for _, a := range o.Allocated {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				take(ip)
			}
		}
	})
	t.NamedBlocks = store.NewIndex(t.Objects, "namedBlocks", func(k api.Key, o *api.Object, add func(struct{}, mesh.AddressBlock)) {
		if k.Kind == api.KindServiceEntry {
			named(o, func(block netip.Prefix) {
				if !block.IsSingleIP() {
					add(struct{}{}, mesh.AddressBlock{Prefix: block})
				}
			})
		}
	})
}

// Ranges returns the ranges from which addresses are allocated. They do not change.
func (t *Tables) Ranges() mesh.Ranges {
	if !t.options.Ranges.IPv4.IsValid() {
		return mesh.DefaultRanges()
	}
	return t.options.Ranges
}

// Allocates reports whether addresses are allocated to an object: to a ServiceEntry that names none, unless it asks for none, or
// proxies could not use them because they reach the service at any address.
func Allocates(o *api.Object) bool {
	spec, ok := o.Spec.(*networking.ServiceEntry)
	return ok && len(spec.GetAddresses()) == 0 && spec.GetResolution() != networking.ServiceEntry_NONE &&
		!strings.EqualFold(o.Labels[api.AutoAllocate], "false")
}

// OwnHosts returns the hosts of a ServiceEntry to which addresses are allocated: its hosts that are not patterns, each once.
func OwnHosts(o *api.Object) (hosts []string) {
	spec, _ := o.Spec.(*networking.ServiceEntry)
	for _, h := range ownNames(spec.GetHosts()) {
		if !strings.HasPrefix(h, "*") {
			hosts = append(hosts, h)
		}
	}
	return hosts
}
