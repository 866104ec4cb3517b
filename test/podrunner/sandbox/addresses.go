package sandbox

import (
	"fmt"
	"math/big"
	"net/netip"
	"sync"
)

// Addresses hands out the addresses of a node. A pod gets the same number in every family. Numbers are not used again
// before all others were, so that a late packet or a stale endpoint rarely meets a stranger.
type Addresses struct {
	prefixes []netip.Prefix

	mu   sync.Mutex
	last uint32
	size uint32
	used map[uint32]bool
}

// NewAddresses hands out the addresses in the prefixes, except the first ones, which are the node's own.
func NewAddresses(prefixes []netip.Prefix) (*Addresses, error) {
	if len(prefixes) == 0 {
		return nil, fmt.Errorf("no pod CIDR")
	}
	a := &Addresses{used: make(map[uint32]bool), size: 1 << 16, last: 1}
	for _, prefix := range prefixes {
		if !prefix.IsValid() {
			return nil, fmt.Errorf("pod CIDR %v is none", prefix)
		}
		a.prefixes = append(a.prefixes, prefix.Masked())
		free := prefix.Addr().BitLen() - prefix.Bits()
		if free < 2 {
			return nil, fmt.Errorf("pod CIDR %v is too small: it has no room for a node and a pod", prefix)
		}
		if free < 16 {
			a.size = min(a.size, 1<<free)
		}
	}
	return a, nil
}

// Node is the node's own addresses, one for each prefix.
func (a *Addresses) Node() []netip.Addr { return a.at(1) }

// Take returns the addresses of a new pod, one for each prefix.
func (a *Addresses) Take() ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// 0 is the network, 1 the node, the last one IPv4's broadcast.
	for range a.size {
		a.last++
		if a.last >= a.size-1 {
			a.last = 2
		}
		if !a.used[a.last] {
			a.used[a.last] = true
			return a.at(a.last), nil
		}
	}
	return nil, fmt.Errorf("no address left in %v", a.prefixes)
}

// Give takes a pod's addresses back.
func (a *Addresses) Give(addresses []netip.Addr) {
	if len(addresses) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	base := new(big.Int).SetBytes(a.prefixes[0].Addr().AsSlice())
	number := new(big.Int).SetBytes(addresses[0].AsSlice())
	delete(a.used, uint32(number.Sub(number, base).Uint64()))
}

func (a *Addresses) at(number uint32) []netip.Addr {
	addresses := make([]netip.Addr, len(a.prefixes))
	for i, prefix := range a.prefixes {
		bytes := prefix.Addr().AsSlice()
		for at, rest := len(bytes)-1, number; rest > 0; at, rest = at-1, rest>>8 {
			sum := uint32(bytes[at]) + rest&0xff
			bytes[at] = byte(sum) // prefixes are masked: no carry
		}
		addresses[i], _ = netip.AddrFromSlice(bytes)
	}
	return addresses
}
