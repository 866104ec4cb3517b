package dns

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/pilotmesh/pilot/internal/agent/disk"
)

// maxResolvConf is the size of the largest resolv.conf, in bytes.
const maxResolvConf = 64 << 10

// resolver is the content of resolv.conf.
type resolver struct {
	servers []netip.AddrPort
	search  []string
}

// readResolver reads a file in the format of resolv.conf. It leaves out the servers that are the agent itself.
func readResolver(path string, own []netip.AddrPort) (*resolver, error) {
	text, err := disk.Read(path)
	if err != nil {
		return nil, fmt.Errorf("the servers for other names: %w", err)
	}
	c, err := dns.ClientConfigFromReader(bytes.NewReader(text[:min(len(text), maxResolvConf)]))
	if err != nil {
		return nil, fmt.Errorf("the servers for other names: %s: %w", path, err)
	}
	r := &resolver{}
	for _, text := range c.Servers {
		at, err := netip.ParseAddrPort(net.JoinHostPort(text, c.Port))
		if err == nil && !slices.Contains(own, at) && !slices.Contains(r.servers, at) {
			r.servers = append(r.servers, at)
		}
	}
	for _, domain := range c.Search {
		if domain = canonical(strings.TrimPrefix(domain, ".")); domain != "" {
			r.search = append(r.search, domain)
		}
	}
	return r, nil
}

// equal reports whether two files have the same content.
func (r *resolver) equal(o *resolver) bool {
	return slices.Equal(r.servers, o.servers) && slices.Equal(r.search, o.search)
}

// errNoServer is the error if there is no server to query.
var errNoServer = errors.New("resolv.conf names no server that is not the agent itself")
