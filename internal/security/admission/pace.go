package admission

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// refusalEvery is how long an address pays for a refusal: one in this time has no effect on its connections.
	refusalEvery = 50 * time.Millisecond
	// freeRefusals is how many refusals may come at once.
	freeRefusals = 20
	// maxWait is the longest time that a connection waits for its handshake. It is shorter than the time that a handshake may take.
	maxWait = 3 * time.Second
	// maxAddresses is the largest number of addresses with an entry. Connections of all others never wait.
	maxAddresses = 10_000
)

// errPaced refuses a connection because too many connections of its address wait.
var errPaced = errors.New("too many callers at this address have been refused, and too many of its connections wait")

// Pace delays the TLS handshakes of addresses whose callers are refused again and again. A handshake costs the server far more than the
// refusal that follows, so without a limit one client with invented tokens could use up the cores that the proxies at all other
// addresses need. An address whose callers are not refused never waits. The zero value is ready to use.
type Pace struct {
	mu    sync.Mutex
	peers map[netip.Prefix]*paced
	// searched is when the full table was last searched for entries to remove. With one search for each refusal, a client with many addresses
	// would delay the handshakes of all others.
	searched time.Time
}

// paced is an address with refused callers.
type paced struct {
	// paid is when the address has paid for all refusals.
	paid time.Time
	// next is when the next waiting connection may begin.
	next time.Time
}

// Refused notes that a caller at an address was refused.
func (p *Pace) Refused(from net.Addr, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.enter(network(from), now)
	if peer == nil {
		return
	}
	peer.paid = earlier(later(peer.paid, now).Add(refusalEvery), now.Add(freeRefusals*refusalEvery+maxWait))
}

// Wait returns when the handshake of a connection may begin. If that is too late, it returns errPaced at once.
func (p *Pace) Wait(from net.Addr) error {
	wait := p.reserve(network(from), time.Now())
	switch {
	case wait == 0:
		return nil
	case wait > maxWait:
		return errPaced
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	<-timer.C
	return nil
}

// reserve returns how long a connection waits. One that waits no longer than it may delays the next one.
func (p *Pace) reserve(of netip.Prefix, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[of]
	if peer == nil {
		return 0
	}
	begin := later(peer.paid.Add(-freeRefusals*refusalEvery), peer.next)
	wait := max(begin.Sub(now), 0)
	if wait > 0 && wait <= maxWait {
		peer.next = begin.Add(refusalEvery)
	}
	return wait
}

// enter returns the entry of an address. If there is no room for it, it first removes the entries of addresses that have paid, at most once
// each refusalEvery, the least time that an entry takes to pay; nil if there is still no room.
func (p *Pace) enter(of netip.Prefix, now time.Time) *paced {
	if p.peers == nil {
		p.peers = map[netip.Prefix]*paced{}
	}
	if peer := p.peers[of]; peer != nil {
		return peer
	}
	if len(p.peers) >= maxAddresses && now.Sub(p.searched) >= refusalEvery {
		p.clean(now)
	}
	if len(p.peers) >= maxAddresses {
		return nil
	}
	peer := &paced{}
	p.peers[of] = peer
	return peer
}

// clean removes the entries of addresses that have paid.
func (p *Pace) clean(now time.Time) {
	p.searched = now
	for of, peer := range p.peers {
		if peer.paid.Before(now) && peer.next.Before(now) {
			delete(p.peers, of)
		}
	}
}

// network returns the IPv4 address or the IPv6 network of a client; the zero Prefix for other clients. A host with IPv6 usually has a
// whole /64 network of addresses.
func network(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
