package proxy

import (
	"cmp"
	"encoding/binary"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
)

// Registering is a connection of a proxy that asks for registration.
type Registering struct {
	Connected  int64 // in nanoseconds since 1970
	Connection string
	// Group and Account are the names of the WorkloadGroup and the service account of the proxy; the account may be empty. Verified says
	// that the proxy has shown who it is. They decide whether it may be registered.
	Group, Account string
	Verified       bool
}

// Compare orders the newest first.
func (c Registering) Compare(o Registering) int {
	return cmp.Or(cmp.Compare(o.Connected, c.Connected), strings.Compare(c.Connection, o.Connection), strings.Compare(c.Group, o.Group),
		strings.Compare(c.Account, o.Account), cmp.Compare(digit(c.Verified), digit(o.Verified)))
}

// AppendTo appends an unambiguous form.
func (c Registering) AppendTo(b []byte) []byte {
	b = append(binary.AppendVarint(b, c.Connected), digit(c.Verified))
	for _, s := range []string{c.Connection, c.Group, c.Account} {
		b = append(append(b, s...), 0)
	}
	return b
}

func digit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// RegisteringOf returns the data that decides about the registration of a proxy.
func RegisteringOf(connection string, p *Proxy) Registering {
	return Registering{p.Connected.UnixNano(), connection, p.Group, p.Account, !p.Identity.IsZero()}
}

// EntryOf returns the key of the WorkloadEntry of a proxy that asks to be registered; false if it does not.
func EntryOf(p *Proxy) (api.Key, bool) {
	if p.Group == "" || p.Role == Agent {
		return api.Key{}, false
	}
	name := p.Group + "-" + strings.ReplaceAll(p.Addresses[0], ":", "-")
	if p.Network != "" {
		name += "-" + p.Network
	}
	if over := len(name) - maxObjectName; over > 0 {
		name = strings.TrimLeft(name[over:], "-.") // the end distinguishes the workloads of a group
	}
	return api.Key{Kind: api.KindWorkloadEntry, Namespace: p.Namespace, Name: name}, true
}

// maxObjectName is the length of the longest name of an object in a cluster.
const maxObjectName = 253
