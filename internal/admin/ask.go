package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// visibleKey is the context key of the only namespace of whose proxies a client may read.
type visibleKey struct{}

// visible returns the only namespace of whose proxies a client may read; false if it may read of all.
func visible(ctx context.Context) (namespace string, ok bool) {
	namespace, ok = ctx.Value(visibleKey{}).(string)
	return namespace, ok
}

// Answer returns the body of a page for a client that asks by xDS, as an agent does for its workload. A client that has shown a namespace
// of Options.Namespaces may read all pages. One of another namespace may read pages about proxies, and sees only the proxies of its
// namespace. A client without an identity may read the same pages as by HTTP. Errors have a gRPC status.
func (p *Pages) Answer(ctx context.Context, q server.Page) ([]byte, error) {
	body, err := p.answer(ctx, q)
	if err != nil {
		no := refusalOf(err)
		return nil, status.Error(codeOf(no.status), no.text)
	}
	return body, nil
}

func (p *Pages) answer(ctx context.Context, q server.Page) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/debug/"+q.Path, http.NoBody)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%q is not a page with parameters: %v", q.Path, err)
	}
	all, err := p.readsAll(q)
	if err != nil {
		return nil, err
	}
	if !all {
		r = r.WithContext(context.WithValue(ctx, visibleKey{}, q.Caller.Namespace))
	}
	if r.URL.Path == "/debug/list" {
		return encode(r, func(r *http.Request) (any, error) { return p.readable(r.Context()), nil })
	}
	i := slices.IndexFunc(p.list, func(one page) bool { return one.Path == r.URL.Path })
	switch {
	case i < 0:
		return nil, refuse(http.StatusNotFound, "there is no page %s; /debug/list lists them", r.URL.Path)
	case !all && !p.list[i].proxies:
		return nil, refuse(http.StatusForbidden, "%s is for workloads in namespace %s; this one is in %s, and may read about proxies of its own namespace (/debug/list lists it)",
			r.URL.Path, strings.Join(p.Namespaces, ", "), q.Caller.Namespace)
	}
	return encode(r, p.list[i].show)
}

// readsAll reports whether a client may read all pages. The error says that it may read none.
func (p *Pages) readsAll(q server.Page) (bool, error) {
	if q.Caller.Identity == (identity.Identity{}) {
		if !p.Remote && !loopback(q.Address) {
			return false, refuse(http.StatusForbidden, "the debug pages are for clients that show who they are: connect over TLS, or from this host")
		}
		return true, nil
	}
	return p.Remote || slices.Contains(p.Namespaces, q.Caller.Namespace), nil
}

// readable returns the pages that a client may read.
func (p *Pages) readable(ctx context.Context) []page {
	if _, ok := visible(ctx); !ok {
		return p.list
	}
	return slices.DeleteFunc(slices.Clone(p.list), func(one page) bool { return !one.proxies })
}

// codeOf returns the gRPC code for an HTTP status of a refusal.
func codeOf(status int) codes.Code {
	switch status {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	}
	return codes.Internal
}
