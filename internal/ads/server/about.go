package server

import (
	"time"

	"google.golang.org/grpc/peer"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// What the mesh asks a stream about its client.

// Caller returns who the client is; the zero Caller if that is not known.
func (s *Stream) Caller() identity.Caller { return s.caller }

// SplitRoutes makes the stream send virtual hosts as resources of their own if its client can have them. Mesh.Connect may call it before the first Update.
func (s *Stream) SplitRoutes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.SplitRoutes()
}

// DemandHosts makes the stream send virtual hosts when its client asks for them. Mesh.Connect may call it after SplitRoutes.
func (s *Stream) DemandHosts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.DemandHosts()
}

// HasCluster reports whether the client, which connects again, has a cluster with a name; known is false if it says nothing of its clusters. Only
// Mesh.Connect may call it.
func (s *Stream) HasCluster(name string) (has, known bool) {
	if t, ok := resource.ParseType(string(s.first.URL)); !ok || t != resource.Cluster {
		return false, false
	}
	for of := range s.first.Initial() {
		if known = true; string(of) == name {
			return true, true
		}
	}
	return false, known
}

// Variant is the variant of the protocol that the client uses.
func (s *Stream) Variant() protocol.Variant { return s.variant }

// ID is the number of the stream.
func (s *Stream) ID() uint64 { return s.id }

// Opened is the time when the stream was opened.
func (s *Stream) Opened() time.Time { return s.opened }

// Peer is the address of the client; empty if it is not known.
func (s *Stream) Peer() string {
	if p, ok := peer.FromContext(s.grpc.Context()); ok {
		return p.Addr.String()
	}
	return ""
}

// Cause returns why the stream has ended: nil if it has not, or if the client closed it.
func (s *Stream) Cause() error {
	if !s.ended.Load() {
		return nil
	}
	return s.cause
}
