package dns

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/nds"
)

// Limits of a table, far above the sizes in a large mesh.
const (
	maxNames     = 200_000
	maxAddresses = 20_000 // of one name
	maxNameSize  = 253    // of the DNS
)

// Table has the names that the agent knows. It never changes; another version of it shares almost all of its memory.
type Table struct {
	names omap.Map[omap.Name, *name]
}

// name is the entry of one name.
type name struct {
	four, six []netip.Addr
	// cluster is true for the name of a Service, which may be shortened.
	cluster bool
	// version is the version of the resource, by which contents are compared.
	version string
}

// ContentHash implements omap.Value.
func (n *name) ContentHash() omap.Hash {
	b := append([]byte(n.version), 0)
	for _, list := range [][]netip.Addr{n.four, n.six} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, a := range list {
			b = append(b, a.AsSlice()...)
		}
	}
	return omap.Sum(b)
}

// Size implements omap.Value.
func (*name) Size() int { return 0 }

// newName checks the entry of a name from the control plane.
func newName(e nds.Entry, version string) (omap.Name, *name, error) {
	host := canonical(e.Host)
	if host == "" || len(host) > maxNameSize {
		return "", nil, fmt.Errorf("the name %.80q is empty or longer than %d bytes", e.Host, maxNameSize)
	}
	if len(e.Addresses) > maxAddresses {
		return "", nil, fmt.Errorf("the name %q has %d addresses, and the most is %d", host, len(e.Addresses), maxAddresses)
	}
	n := &name{cluster: e.Registry == nds.Kubernetes, version: version}
	for _, text := range e.Addresses {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || a.Zone() != "":
			return "", nil, fmt.Errorf("the name %q has the address %.80q, which is no IP address", host, text)
		case a.Unmap().Is4():
			n.four = append(n.four, a.Unmap())
		default:
			n.six = append(n.six, a)
		}
	}
	return omap.Name(host), n, nil
}

// canonical is a name in lower case and without the dot at its end.
func canonical(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// with returns the table with changes.
func (t *Table) with(changes ...omap.Change[omap.Name, *name]) *Table {
	return &Table{omap.With(t.names, changes...)}
}

// versions are the versions of all names, for a control plane that the agent connects to again.
func (t *Table) versions() map[string]string {
	all := make(map[string]string, t.names.Len())
	for host, n := range t.names.All() {
		all[string(host)] = n.version
	}
	return all
}

// domains are the domains that clients append to the names that they look up.
type domains struct {
	// Own is the domain of the workload's namespace: NAMESPACE.svc.cluster.local.
	Own string
	// Search is the search list of the resolver.
	Search []string
}

// shortened are the full names of Services that a name may be short for, in the order in which the search list of a pod has them.
func (d domains) shortened(host string) []string {
	namespace, rest, ok := strings.Cut(d.Own, ".svc.")
	if !ok || namespace == "" {
		return nil
	}
	return []string{host + "." + d.Own, host + ".svc." + rest, host + "." + rest}
}

// find looks for a name that is in canonical form. If the client has appended a domain of its search list to the name, alias is the name
// without it.
func (t *Table) find(host string, d domains) (found *name, alias string) {
	if n := t.exact(host, d); n != nil {
		return n, ""
	}
	for _, domain := range d.Search {
		if base, ok := strings.CutSuffix(host, "."+domain); ok {
			if n := t.exact(base, d); n != nil {
				return n, base
			}
		}
	}
	if n := t.wildcard(host); n != nil {
		return n, ""
	}
	for _, domain := range d.Search {
		if base, ok := strings.CutSuffix(host, "."+domain); ok {
			if n := t.wildcard(base); n != nil {
				return n, base
			}
		}
	}
	return nil, ""
}

// exact looks for a name, and then for Services whose name it is short for.
func (t *Table) exact(host string, d domains) *name {
	if n, ok := t.names.Get(omap.Name(host)); ok {
		return n
	}
	if strings.Count(host, ".") > maxShortDots {
		return nil
	}
	for _, full := range d.shortened(host) {
		if n, ok := t.names.Get(omap.Name(full)); ok && n.cluster {
			return n
		}
	}
	return nil
}

// maxShortDots is the number of dots in the longest short name: POD.SERVICE.NAMESPACE.svc.
const maxShortDots = 3

// wildcard looks for the longest pattern that covers a name.
func (t *Table) wildcard(host string) *name {
	for {
		_, rest, ok := strings.Cut(host, ".")
		if !ok {
			return nil
		}
		if n, ok := t.names.Get(omap.Name("*." + rest)); ok {
			return n
		}
		host = rest
	}
}
