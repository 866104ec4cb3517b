package gateway

import (
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// hostOf reads "host" or "namespace/host", where the namespace "." is the namespace of the Gateway and "*" means all.
func hostOf(text, own string) Host {
	namespace, name, ok := strings.Cut(strings.ToLower(text), "/")
	switch {
	case !ok:
		return Host{Name: namespace}
	case namespace == ".":
		return Host{own, name}
	case namespace == "*":
		return Host{Name: name}
	}
	return Host{namespace, name}
}

// NameOf returns the name of a Gateway that a VirtualService of a namespace means, as NAMESPACE/NAME. mesh.Gateway, which means
// all sidecars, stays as it is. NAME.NAMESPACE and what follows that is an old form.
func NameOf(text, namespace string) string {
	if text == mesh.Gateway {
		return text
	}
	if in, name, ok := strings.Cut(text, "/"); ok {
		if in == "." {
			in = namespace
		}
		return in + "/" + name
	}
	if name, rest, ok := strings.Cut(text, "."); ok {
		in, _, _ := strings.Cut(rest, ".")
		return in + "/" + name
	}
	return namespace + "/" + text
}

// bindOf returns the address at which a server listens; empty for any, whether or not the server says so.
func bindOf(bind string) string {
	if bind == "0.0.0.0" {
		return ""
	}
	return bind
}
