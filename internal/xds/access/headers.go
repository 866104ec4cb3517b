package access

import (
	"net/netip"
	"strings"
)

// headers are the headers of a request as filters see them.
type headers struct {
	method, authority, path string
	others                  map[string][]string
	// hidden are the headers whose values are not known, with the reason. allHidden is a reason for all but those of the protocol.
	hidden    map[string]string
	allHidden string
	// headPath is a reason why the query of the path is not known.
	pathHidden string
}

// rewritten are headers that Envoy sets, changes or removes before any filter, by what is not described here.
func rewritten(name string) bool {
	switch name {
	case ":scheme", ":protocol", "connection", "content-length", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade",
		"x-forwarded-client-cert", "x-forwarded-proto", "x-request-id", "x-client-trace-id":
		return true
	}
	return strings.HasPrefix(name, "x-envoy-")
}

func (e *evaluation) readHeaders() *headers {
	h := &headers{method: e.Method, authority: e.Host, path: e.Path, others: map[string][]string{}, hidden: map[string]string{}}
	for _, one := range e.Headers {
		name := lowerASCII(one.Name)
		if h.others[name] != nil && name == "cookie" {
			h.hidden[name] = "it depends on how several cookie headers are joined"
		}
		h.others[name] = append(h.others[name], strings.Trim(one.Value, " \t"))
	}
	return h
}

// get returns the values of a header, one for each of its lines: policies compare each for itself, unless
// envoy.reloadable_features.rbac_match_headers_individually is turned off. why says why they are not known.
func (h *headers) get(name string) (values []string, why string) {
	if h == nil {
		return nil, ""
	}
	name = lowerASCII(name)
	switch name {
	case ":method":
		return []string{h.method}, ""
	case ":authority", "host":
		if h.authority == "" {
			return nil, ""
		}
		return []string{h.authority}, ""
	case ":path":
		return []string{h.path}, h.pathHidden
	}
	if why := h.hidden[name]; why != "" {
		return nil, why
	}
	if h.allHidden != "" {
		return nil, h.allHidden
	}
	if rewritten(name) {
		return nil, "it depends on the header " + name + ", which Envoy writes itself"
	}
	return h.others[name], ""
}

// clientAddress is the address of the client as x-forwarded-for tells it: the last one there, or else that of the connection. A proxy
// in front of the workload is believed.
func (h *headers) clientAddress(direct netip.Addr) netip.Addr {
	list := strings.Join(h.others["x-forwarded-for"], ",")
	last := list[strings.LastIndexByte(list, ',')+1:]
	if a, err := netip.ParseAddr(strings.Trim(last, " \t")); err == nil && a.Zone() == "" {
		return a
	}
	return direct
}
