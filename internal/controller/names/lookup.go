package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/pilotmesh/pilot/internal/run/safedial"
)

const (
	// patience is how long one server may take for one answer.
	patience = 2 * time.Second
	// maxServers bounds how many servers are asked, maxAddresses how many addresses of a name are used, and maxAliases how many names
	// lead from a name to its addresses.
	maxServers   = 3
	maxAddresses = 32
	maxAliases   = 16
	// messageSize is the size of the largest answer over UDP, in bytes.
	messageSize = 1232
)

// HostServers returns the servers of the host.
func HostServers() ([]string, error) {
	const file = "/etc/resolv.conf"
	conf, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("the servers of the host: %w", err)
	}
	if len(conf.Servers) == 0 {
		return nil, fmt.Errorf("%s names no server", file)
	}
	list := make([]string, 0, len(conf.Servers))
	for _, server := range conf.Servers {
		list = append(list, net.JoinHostPort(server, conf.Port))
	}
	return list, nil
}

// Client asks the DNS.
type Client struct {
	// Servers returns the addresses of the servers, with ports. It is called for each question, because the servers may change.
	Servers func() ([]string, error)
	// Loopback says that an address may be a loopback address, because the author of the configuration owns the host.
	Loopback bool
}

// family is a version of IP, by the type of its records.
type family uint16

// families returns both versions.
func families() []family { return []family{family(dns.TypeA), family(dns.TypeAAAA)} }

// answer is what a server says about a name and a family.
type answer struct {
	addresses []netip.Addr
	ttl       time.Duration
	// blocked is true if there were addresses that proxies must not connect to.
	blocked bool
}

// errBlocked is why a name has no usable address.
var errBlocked = errors.New("its addresses are ones of loopback, link-local and the like")

// ask returns the addresses of a name. It asks the next server if one fails.
func (c *Client) ask(ctx context.Context, host string, f family) (answer, error) {
	servers, failure := c.Servers()
	for i, server := range servers {
		if i == maxServers {
			break
		}
		m, err := exchange(ctx, server, host, f)
		if err == nil {
			return c.read(m, host, f), nil
		}
		if failure == nil {
			failure = err
		}
	}
	return answer{}, failure
}

// exchange asks one server, over TCP if the answer does not fit a packet. Each question has its own socket and random number, so that only
// a host that sees the question can answer it.
func exchange(ctx context.Context, server, host string, f family) (*dns.Msg, error) {
	q := new(dns.Msg).SetQuestion(dns.Fqdn(host), uint16(f))
	q.SetEdns0(messageSize, false)
	for _, network := range []string{"udp", "tcp"} {
		client := &dns.Client{Net: network, Timeout: patience, UDPSize: messageSize}
		m, _, err := client.ExchangeContext(ctx, q, server)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the server %s gives no answer", server)
		case m.Truncated && network == "udp":
			continue
		case m.Id != q.Id || len(m.Question) != 1 || !strings.EqualFold(m.Question[0].Name, q.Question[0].Name) || m.Question[0].Qtype != uint16(f):
			return nil, fmt.Errorf("the server %s answers another question", server)
		case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
			return nil, fmt.Errorf("the server %s answers %s", server, dns.RcodeToString[m.Rcode])
		}
		return m, nil
	}
	return nil, fmt.Errorf("the server %s gives no whole answer", server)
}

// read takes the addresses from an answer: the ones of the name, or of a name that it is an alias of.
func (c *Client) read(m *dns.Msg, host string, f family) (a answer) {
	names := []string{dns.CanonicalName(host)}
	note := func(h *dns.RR_Header) {
		if ttl := time.Duration(h.Ttl) * time.Second; a.ttl == 0 || ttl < a.ttl {
			a.ttl = max(ttl, 1)
		}
	}
	for range maxAliases {
		i := slices.IndexFunc(m.Answer, func(rr dns.RR) bool {
			alias, ok := rr.(*dns.CNAME)
			return ok && dns.CanonicalName(alias.Hdr.Name) == names[len(names)-1] && !slices.Contains(names, dns.CanonicalName(alias.Target))
		})
		if i < 0 {
			break
		}
		note(m.Answer[i].Header())
		names = append(names, dns.CanonicalName(m.Answer[i].(*dns.CNAME).Target))
	}
	for _, rr := range m.Answer {
		ip, ok := addressOf(rr, f)
		if !ok || dns.CanonicalName(rr.Header().Name) != names[len(names)-1] {
			continue
		}
		if (safedial.Options{Loopback: c.Loopback}).Blocks(ip) {
			a.blocked = true
			continue
		}
		note(rr.Header())
		if len(a.addresses) < maxAddresses && !slices.Contains(a.addresses, ip) {
			a.addresses = append(a.addresses, ip)
		}
	}
	slices.SortFunc(a.addresses, netip.Addr.Compare)
	return a
}

// addressOf returns the address in a record of a family.
func addressOf(rr dns.RR, f family) (ip netip.Addr, ok bool) {
	switch is := rr.(type) {
	case *dns.A:
		ip, ok = netip.AddrFromSlice(is.A.To4())
		return ip, ok && uint16(f) == dns.TypeA
	case *dns.AAAA:
		ip, ok = netip.AddrFromSlice(is.AAAA)
		return ip.Unmap(), ok && uint16(f) == dns.TypeAAAA
	}
	return ip, false
}
