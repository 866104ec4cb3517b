package state

import (
	"cmp"
	"net/netip"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/store"
)

// Ranges are the ranges from which addresses are allocated to the hosts of ServiceEntries.
type Ranges struct{ IPv4, IPv6 netip.Prefix }

// DefaultRanges are the ranges that Istio uses. No host on the internet has an address in them.
func DefaultRanges() Ranges {
	return Ranges{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}
}

// has reports whether addresses of a block may be allocated.
func (a Ranges) has(block netip.Prefix) bool { return a.IPv4.Overlaps(block) || a.IPv6.Overlaps(block) }

// Holder is a ServiceEntry that uses an address.
type Holder struct {
	// Allocated is true if the address is one of status.addresses, and false if the author of the object names it.
	Allocated bool
	AgeKey
}

// Compare orders objects that name the address before those to which it is allocated, and then by age.
func (h Holder) Compare(o Holder) int {
	if h.Allocated != o.Allocated {
		if o.Allocated {
			return -1
		}
		return 1
	}
	return h.AgeKey.Compare(o.AgeKey)
}

// AppendTo appends an unambiguous form.
func (h Holder) AppendTo(b []byte) []byte {
	if h.Allocated {
		return h.AgeKey.AppendTo(append(b, 1))
	}
	return h.AgeKey.AppendTo(append(b, 0))
}

func (t *Tables) defineAddresses() {
	ranges := t.Ranges()
	named := func(o *api.Object, add func(netip.Prefix)) {
		for _, text := range o.Spec.(*networking.ServiceEntry).GetAddresses() {
			if block, err := netip.ParsePrefix(text); err == nil && ranges.has(block) {
				add(block.Masked())
			} else if ip, err := netip.ParseAddr(text); err == nil && ranges.has(netip.PrefixFrom(ip, ip.BitLen())) {
				add(netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	t.AddressHolders = store.NewIndex(t.Objects, "addressHolders", func(k api.Key, o *api.Object, add func(netip.Addr, Holder)) {
		if k.Kind != api.KindServiceEntry {
			return
		}
		at := AgeKey{age(o), k}
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
	t.NamedBlocks = store.NewIndex(t.Objects, "namedBlocks", func(k api.Key, o *api.Object, add func(struct{}, AddressBlock)) {
		if k.Kind == api.KindServiceEntry {
			named(o, func(block netip.Prefix) {
				if !block.IsSingleIP() {
					add(struct{}{}, AddressBlock{block})
				}
			})
		}
	})
}

// AddressBlock is a block of addresses.
type AddressBlock struct{ netip.Prefix }

// Compare orders by the first address, then by size.
func (a AddressBlock) Compare(o AddressBlock) int {
	return cmp.Or(a.Addr().Compare(o.Addr()), cmp.Compare(a.Bits(), o.Bits()))
}

// AppendTo appends an unambiguous form.
func (a AddressBlock) AppendTo(b []byte) []byte { return a.Prefix.AppendTo(b) }

// Ranges returns the ranges from which addresses are allocated. They do not change.
func (t *Tables) Ranges() Ranges {
	if !t.options.Ranges.IPv4.IsValid() {
		return DefaultRanges()
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

// OwnHosts returns the hosts of a ServiceEntry to which addresses are allocated: those that are no patterns, each once.
func OwnHosts(o *api.Object) (hosts []string) {
	spec, _ := o.Spec.(*networking.ServiceEntry)
	for _, h := range ownNames(spec.GetHosts()) {
		if !strings.HasPrefix(h, "*") {
			hosts = append(hosts, h)
		}
	}
	return hosts
}
