package resource

// Answer is what a proxy gets for a name that it requests, of a type that is answered per proxy. The zero value means that there is no
// such resource.
type Answer struct {
	Resource *Resource
	// Denied means that the proxy must not have the resource, if there is one. Resource is nil then.
	Denied bool
	// Pending means that there is no answer yet, and that there will be one: the proxy waits.
	Pending bool
	// Unexpected means that nothing demands the resource: a client of a gateway named a host that the gateway does not have. Clients may name any
	// host, so this is no trouble of the proxy.
	Unexpected bool
	// Reason says why there is no resource; empty if nothing more is known. It has nothing of the content of a resource.
	Reason string
}

// Equal reports whether two answers are the same for the proxy and for users.
func (a Answer) Equal(o Answer) bool {
	if a.Resource == nil || o.Resource == nil {
		return a == o
	}
	return a.Denied == o.Denied && a.Pending == o.Pending && a.Unexpected == o.Unexpected && a.Reason == o.Reason && a.Resource.ContentHash() == o.Resource.ContentHash()
}
