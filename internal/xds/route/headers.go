package route

import (
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// headerChanges are header operations in Envoy's form. On one level, Envoy removes headers before it adds any.
type headerChanges struct {
	requestAdd, responseAdd       []*corev3.HeaderValueOption
	requestRemove, responseRemove []string
	// authority is the new Host header of the request; empty if it does not change.
	authority string
}

func headerOperations(h *networking.Headers) headerChanges {
	var o headerChanges
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

// then returns o followed by p. If both set the authority, o's is used.
func (o headerChanges) then(p headerChanges) headerChanges {
	o.requestAdd = append(slices.Clip(o.requestAdd), p.requestAdd...)
	o.responseAdd = append(slices.Clip(o.responseAdd), p.responseAdd...)
	o.requestRemove = append(slices.Clip(o.requestRemove), p.requestRemove...)
	o.responseRemove = append(slices.Clip(o.responseRemove), p.responseRemove...)
	if o.authority == "" {
		o.authority = p.authority
	}
	return o
}

// additions are new header values, sorted by name, without the Host header, whose value is returned as authority.
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

// removals are the names that may be removed. Pseudo-headers and the Host header are not among them.
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
