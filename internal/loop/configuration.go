package loop

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/configuration"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/xds/mcp"
)

// view is the objects of a kind that readers from one cluster see. It belongs to the loop's goroutine.
type view struct {
	now     configuration.Map
	known   bool
	readers map[*reader]struct{}
	release func()
}

// reader is a client that reads configuration.
type reader struct {
	loop    *Loop
	cluster string
	changed func()
	// joined and left belong to the loop's goroutine.
	joined, left bool

	mu      sync.Mutex
	content map[string]configuration.Map // by kind
}

// Configuration implements server.ConfigurationFunc: it admits a client that reads configuration. Only clients whose identity is of the root namespace
// may, because configuration has private objects of all namespaces.
func (l *Loop) Configuration(ctx context.Context, who server.ConfigurationReader, changed func()) (server.Configuration, error) {
	select {
	case <-l.synced:
	default:
		return nil, status.Error(codes.Unavailable, errNotReady.Error())
	}
	r := &reader{loop: l, cluster: who.Cluster, changed: changed, content: map[string]configuration.Map{}}
	var refused error
	err := l.Inspect(ctx, func(v *View) {
		if refused = l.refuses(who, v.Tables.PresentRootNamespace()); refused == nil {
			l.join(r)
		}
	})
	switch {
	case err != nil:
		r.Close()
		return nil, status.Error(codes.Unavailable, err.Error())
	case refused != nil:
		if l.settings.Refused != nil {
			l.settings.Refused(ctx, refused)
		}
		return nil, refused
	}
	return r, nil
}

// refuses returns why a client may not read configuration.
func (l *Loop) refuses(who server.ConfigurationReader, root string) error {
	switch {
	case l.settings.OpenConfiguration:
		return nil
	case who.Caller.IsZero():
		return status.Error(codes.Unauthenticated, "only clients that show who they are may read configuration; connect with TLS, and a certificate or token of a service account of the root namespace")
	case who.Caller.Namespace != root:
		return status.Error(codes.PermissionDenied, fmt.Sprintf("only service accounts of the root namespace %s may read configuration, and the client is %s", root, who.Caller.Identity))
	}
	return nil
}

// join adds a reader to the views of its cluster. The first reader of a view causes it to be built.
func (l *Loop) join(r *reader) {
	if r.left {
		return
	}
	r.joined = true
	for _, k := range mcp.Kinds() {
		of := mcp.View{Kind: k.Name, Reader: r.cluster}
		v := l.views[of]
		if v == nil {
			v = &view{readers: map[*reader]struct{}{}}
			l.views[of] = v
			v.release = l.queries.Configuration.Resources.Observe(of, func(now configuration.Map) {
				v.now, v.known = now, true
				for one := range v.readers {
					one.update(of.Kind, now)
				}
			})
		}
		v.readers[r] = struct{}{}
		if v.known {
			r.update(of.Kind, v.now)
		}
	}
}

// leave removes a reader from its views. A view without readers is not kept.
func (l *Loop) leave(r *reader) {
	r.left = true
	if !r.joined {
		return
	}
	for _, k := range mcp.Kinds() {
		of := mcp.View{Kind: k.Name, Reader: r.cluster}
		v := l.views[of]
		if delete(v.readers, r); len(v.readers) == 0 {
			v.release()
			delete(l.views, of)
		}
	}
}

func (r *reader) update(kind string, now configuration.Map) {
	r.mu.Lock()
	r.content[kind] = now
	r.mu.Unlock()
	r.changed()
}

// Content implements server.Configuration.
func (r *reader) Content(url string) (configuration.Map, bool) {
	kind := mcp.KindOf(url)
	if kind == "" {
		return configuration.Map{}, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, known := r.content[kind]
	return now, known
}

// Close implements server.Configuration.
func (r *reader) Close() { r.loop.queue.add(&job{after: func() { r.loop.leave(r) }}) }
