package route

import (
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// operations are changes of headers as Envoy is told them. Of one level Envoy runs removals first.
type operations struct {
	requestAdd, responseAdd       []*corev3.HeaderValueOption
	requestRemove, responseRemove []string
	// authority is what the request's host is to become; empty if it stays.
	authority string
}

func headerOperations(h *networking.Headers) operations {
	var o operations
	set, name := additions(h.GetRequest().GetSet(), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	add, other := additions(h.GetRequest().GetAdd(), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	o.requestAdd = append(set, add...)
	if o.authority = name; name == "" {
		o.authority = other
	}
	set, _ = additions(h.GetResponse().GetSet(), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	add, _ = additions(h.GetResponse().GetAdd(), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	o.responseAdd = append(set, add...)
	o.requestRemove, o.responseRemove = removals(h.GetRequest().GetRemove()), removals(h.GetResponse().GetRemove())
	return o
}

// and is o, then p. The authority of o stands.
func (o operations) and(p operations) operations {
	o.requestAdd = append(slices.Clip(o.requestAdd), p.requestAdd...)
	o.responseAdd = append(slices.Clip(o.responseAdd), p.responseAdd...)
	o.requestRemove = append(slices.Clip(o.requestRemove), p.requestRemove...)
	o.responseRemove = append(slices.Clip(o.responseRemove), p.responseRemove...)
	if o.authority == "" {
		o.authority = p.authority
	}
	return o
}

// additions are new values in the order of names. The host is no header like others: it is told apart.
func additions(values map[string]string, how corev3.HeaderValueOption_HeaderAppendAction) (list []*corev3.HeaderValueOption, authority string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case isAuthority(name):
			authority = values[name]
		case !strings.HasPrefix(name, ":"):
			list = append(list, &corev3.HeaderValueOption{
				Header: &corev3.HeaderValue{Key: name, Value: values[name]}, AppendAction: how,
			})
		}
	}
	return list, authority
}

// removals are the names that can be removed: not those a request cannot do without.
func removals(names []string) []string {
	var list []string
	for _, name := range names {
		if name != "" && !isAuthority(name) && !strings.HasPrefix(name, ":") {
			list = append(list, name)
		}
	}
	return list
}

func isAuthority(name string) bool {
	return strings.EqualFold(name, "host") || strings.EqualFold(name, ":authority")
}
