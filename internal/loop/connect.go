package loop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/arrivals"
	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

var _ server.Mesh = (*Loop)(nil)

// Connect implements server.Mesh. It parses the node, refuses a proxy whose node id or metadata claims another identity than its client
// has proved, and makes the proxy of the stream a row.
func (l *Loop) Connect(ctx context.Context, node *corev3.Node, s *server.Stream) (server.Attachment, error) {
	p, err := proxy.Parse(proxy.Node{
		ID: node.GetId(), Metadata: node.GetMetadata(), Locality: locality(node), Extensions: extensions(node), Envoy: envoyMinor(node),
	})
	switch {
	case errors.Is(err, proxy.ErrNamespace):
		return nil, l.refuse(ctx, err)
	case err != nil:
		return nil, err
	}
	if caller := s.Caller(); !caller.IsZero() {
		if err := caller.Bind(p.Namespace, p.Account); err != nil {
			return nil, l.refuse(ctx, err)
		}
		p.Identity, p.Account = caller.Identity, caller.ServiceAccount
	}
	if from, err := netip.ParseAddrPort(s.Peer()); err == nil {
		p.From = from.Addr().Unmap().String()
	}
	if p.Group != "" {
		p.Connected = time.Now().UTC()
	}
	split := p.SplitRoutes && takesHosts(node)
	if split {
		s.SplitRoutes()
	}
	had, lists := s.HasCluster(envoy.DemandCluster)
	if p.HostsOnDemand = p.HostsOnDemand && split && s.Variant() == protocol.Delta && (had || !lists); p.HostsOnDemand {
		s.DemandHosts()
	}
	has, known := s.HasCluster(envoy.OnDemandCluster)
	p.OnDemand = onDemand(p.OnDemand, node.GetUserAgentName(), s.Variant(), has, known)
	c, err := l.Attach(p, s)
	if errors.Is(err, errNotReady) {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if err != nil {
		return nil, err
	}
	if log := l.settings.Visits; log != nil {
		v := visitOf(p, node, s)
		log.Came(v)
		c.gone = func() { log.Went(v, why(s.Cause())) }
	}
	return c, nil
}

// visitOf describes a proxy that has connected.
func visitOf(p *proxy.Proxy, node *corev3.Node, s *server.Stream) arrivals.Visit {
	v := arrivals.Visit{
		Proxy: p.ID, Name: proxy.NameOf(p.ID), Namespace: p.Namespace, From: s.Peer(), Agent: p.Version,
		OfAgent: p.Role == proxy.Agent, Stream: s.ID(), Opened: s.Opened(),
	}
	if !p.Identity.IsZero() {
		v.Identity = p.Identity.String()
	}
	if n := node.GetUserAgentBuildVersion().GetVersion(); n != nil {
		v.Envoy = fmt.Sprintf("%d.%d.%d", n.GetMajorNumber(), n.GetMinorNumber(), n.GetPatch())
	}
	return v
}

// why says why a stream has ended.
func why(reason error) string {
	s, ok := status.FromError(reason)
	switch {
	case reason == nil:
		return "the proxy closed the stream"
	case ok && s.Code() == codes.Canceled:
		return "the connection ended"
	case ok:
		return s.Message()
	}
	return reason.Error()
}

// refuse refuses a proxy that claims another identity.
func (l *Loop) refuse(ctx context.Context, err error) error {
	if l.settings.Refused != nil {
		l.settings.Refused(ctx, err)
	}
	return status.Error(codes.PermissionDenied, err.Error())
}

func locality(node *corev3.Node) mesh.Locality {
	l := node.GetLocality()
	return mesh.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
}

// envoyMinor is the minor version of the proxy's Envoy 1.x; 0 if the node does not say it.
func envoyMinor(node *corev3.Node) uint32 {
	v := node.GetUserAgentBuildVersion().GetVersion()
	if v.GetMajorNumber() != 1 {
		return 0
	}
	return v.GetMinorNumber()
}

// The minor versions of Envoy 1, both ends included, with which virtual hosts as resources of their own were measured. Other versions get whole route
// configurations.
const (
	hostsFirst = 37
	hostsLast  = 40
)

// takesHosts reports whether a client is known to take virtual hosts as resources of their own without losing a request.
func takesHosts(node *corev3.Node) bool {
	minor := envoyMinor(node)
	return node.GetUserAgentName() == "envoy" && minor >= hostsFirst && minor <= hostsLast
}

// onDemand returns whether a gateway gets certificates on demand: as its node chooses, unless it has connected before and has the other form. That needs
// delta xDS, where a name without a secret gets an answer. has is true if the gateway lists the cluster of gateways with certificates on demand, and known
// if it lists its clusters.
func onDemand(choice proxy.OnDemand, agent string, v protocol.Variant, has, known bool) proxy.OnDemand {
	switch {
	case v != protocol.Delta || agent != "envoy":
		return proxy.OnDemandOff
	case !known || choice == proxy.OnDemandOff:
		return choice
	case has:
		return proxy.OnDemandOn
	}
	return proxy.OnDemandOff
}

func extensions(node *corev3.Node) []string {
	names := make([]string, 0, len(node.GetExtensions()))
	for _, e := range node.GetExtensions() {
		names = append(names, e.GetName())
	}
	return names
}
