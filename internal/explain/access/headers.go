package access

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// headers are the headers of a request as filters see them.
type headers struct {
	method, authority, path string
	others                  map[string][]string
	// hidden are the headers whose values are not known, with the reason. allHidden is a reason for all but the protocol's.
	hidden    map[string]string
	allHidden string
	// headPath is a reason why the query of the path is not known.
	pathHidden string
}

// rewritten reports whether Envoy sets, changes or removes a header before any filter, depending on facts not described here.
func rewritten(name string) bool {
	switch name {
	case ":scheme", ":protocol", "connection", "content-length", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade",
		"x-forwarded-client-cert", "x-forwarded-proto", "x-request-id", "x-client-trace-id":
		return true
	}
	return strings.HasPrefix(name, "x-envoy-")
}

// readHeaders returns the headers as filters see them. ok is false if the evaluation ends here.
func (e *evaluation) readHeaders() (h *headers, ok bool) {
	h = &headers{method: e.Method, authority: e.Host, path: e.Path, others: map[string][]string{}, hidden: map[string]string{}}
	for _, one := range e.Headers {
		h.add(lowerASCII(one.Name), one.Value, e.HTTP2)
	}
	switch {
	case e.HTTP2 && slices.ContainsFunc(e.Headers, func(one Header) bool { return ofConnection(lowerASCII(one.Name)) }):
		e.stop("requests over HTTP/2 with a header of the connection are not known here")
		return h, false
	case !h.nominated():
		e.deny(http.StatusBadRequest, "", "the header Connection names headers that it must not name, or too many")
		return h, false
	}
	h.dropReferer()
	return h, true
}

// ofConnection reports whether a header is about a connection of HTTP/1.
func ofConnection(name string) bool {
	return slices.Contains([]string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}, name)
}

// add adds a line. Over HTTP/1 the blanks around a value are no part of it.
func (h *headers) add(name, value string, http2 bool) {
	if !http2 {
		value = strings.Trim(value, " \t")
	}
	list := h.others[name]
	separator := ""
	switch {
	case len(list) == 0:
	case joins(name):
		separator = ","
	case http2 && name == "cookie":
		separator = "; "
	}
	if separator == "" {
		h.others[name] = append(list, value)
		return
	}
	h.others[name] = []string{list[0] + separator + value}
}

// joins reports whether Envoy joins the lines of a header. All others stay as they are.
func joins(name string) bool {
	switch name {
	case "accept", "accept-encoding", "access-control-request-headers", "access-control-request-method", "access-control-request-private-network",
		"authorization", "cache-control", "cdn-loop", "connection", "content-encoding", "content-type", "expect", "grpc-accept-encoding",
		"grpc-timeout", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "origin", "pragma", "referer",
		"user-agent", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port":
		return true
	}
	return false
}

// mostNominated is the number of headers from which on Envoy refuses a list of them.
const mostNominated = 10

// nominated removes the headers that Connection names. ok is false if Envoy refuses the request.
func (h *headers) nominated() (ok bool) {
	names := strings.FieldsFunc(strings.Join(h.others["connection"], ","), func(r rune) bool { return r == ',' })
	if len(names) >= mostNominated {
		return false
	}
	for _, name := range names {
		switch name = lowerASCII(strings.Trim(name, " \t")); {
		case strings.HasPrefix(name, ":"), name == "host", name == "x-forwarded-for", name == "x-forwarded-host", name == "x-forwarded-proto":
			return false
		case name != "te":
			delete(h.others, name)
		}
	}
	return true
}

// dropReferer removes a Referer that is no URL to Envoy.
func (h *headers) dropReferer() {
	for _, value := range h.others["referer"] {
		if !isReferer(value) {
			delete(h.others, "referer")
		}
	}
}

// isReferer reports whether Envoy takes a text for a URL, or for one that is relative. One with a fragment is none.
func isReferer(s string) bool {
	only := func(s, others string) bool {
		return !strings.ContainsFunc(s, func(r rune) bool {
			return r >= 0x80 || !unreserved(byte(r)) && !strings.ContainsRune(others, r)
		})
	}
	scheme, rest, absolute := strings.Cut(s, "://")
	if !absolute || !only(scheme, "+.") || scheme == "" || !isLetter(scheme[0]) {
		first := s[:len(s)-len(strings.TrimLeft(s, "!$%&'()*+,-.0123456789;=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"))]
		return only(first, "!$%&'()*+,.;=@") && only(s[len(first):], "!$%&'()*+,./:;=?@") && !strings.HasPrefix(s[len(first):], ":")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	host, port, hasPort := rest[:end], "", false
	if at := strings.LastIndexByte(host, ':'); at > strings.LastIndexByte(host, ']') {
		host, port, hasPort = host[:at], host[at+1:], true
	}
	if _, err := strconv.ParseUint(port, 10, 16); hasPort && err != nil {
		return false
	}
	inside, bracket := strings.CutPrefix(host, "[")
	inside, closed := strings.CutSuffix(inside, "]")
	if bracket != closed || host == "" || bracket && !only(inside, ":.") || !bracket && !only(host, ".") || !bracket && strings.ContainsAny(host, "_~") {
		return false
	}
	return !strings.ContainsFunc(rest[end:], func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' })
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// isAuthority reports whether Envoy takes a text for a host. Over HTTP/2 it must not have user information.
func isAuthority(s string, http2 bool) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r >= 0x80 || !unreserved(byte(r)) && !strings.ContainsRune("!$%&'()*+,.:;=@[]", r) || http2 && r == '@'
	})
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

// clientAddress is the address of the client: the last one in x-forwarded-for, or else the address of the connection. A proxy
// in front of the workload is believed.
func (h *headers) clientAddress(direct netip.Addr) netip.Addr {
	list := strings.Join(h.others["x-forwarded-for"], ",")
	last := list[strings.LastIndexByte(list, ',')+1:]
	if a, err := netip.ParseAddr(strings.Trim(last, " \t")); err == nil && a.Zone() == "" {
		return a
	}
	return direct
}
