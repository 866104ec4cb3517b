package push

import (
	"context"
	"errors"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/server"
)

var _ server.Mesh = (*Loop)(nil)

// Connect implements server.Mesh: it reads the node and makes the stream's proxy a row.
func (l *Loop) Connect(_ context.Context, node *corev3.Node, s *server.Stream) (server.Attachment, error) {
	p, err := proxy.Parse(proxy.Node{
		ID: node.GetId(), Metadata: node.GetMetadata(), Locality: locality(node), Extensions: extensions(node),
	})
	if err != nil {
		return nil, err
	}
	c, err := l.Attach(p, s)
	if errors.Is(err, ErrNotReady) {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func locality(node *corev3.Node) mesh.Locality {
	l := node.GetLocality()
	return mesh.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
}

func extensions(node *corev3.Node) []string {
	names := make([]string, 0, len(node.GetExtensions()))
	for _, e := range node.GetExtensions() {
		names = append(names, e.GetName())
	}
	return names
}

// Pin implements server.Attachment: the proxy rejected content, and its stream holds it back. The objects it was made
// of get a Problem, for as long as the proxy would still be given that content.
func (c *Connection) Pin(pins []server.Pin, reason string) {
	l, conn, now := c.loop, c.conn, time.Now()
	l.enqueue(job{rows: len(pins), write: func(tx *store.Txn) {
		if conn.gone || conn.class == nil {
			return
		}
		for _, p := range pins {
			k := state.RejectionKey{Connection: conn.id, Type: uint8(p.Type), Name: p.Name, Piece: p.Piece}
			row := state.Rejection{
				Content: p.Rejected, Proxy: conn.node, Reason: strings.TrimSpace(reason), At: now,
				Objects: l.queries.Origin(l.graph, conn.class.key, p.Type, p.Name, p.Piece),
			}
			l.tables.Rejections.Set(tx, k, row)
			conn.rejected[k] = struct{}{}
			l.settings.Log.Warn("a proxy rejected a resource; it keeps what it had, everything else goes on",
				"connection", conn.id, "type", p.Type.String(), "resource", p.Name, "piece", p.Piece, "objects", row.Objects, "reason", reason)
		}
	}})
}
