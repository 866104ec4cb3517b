package server

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// code is the gRPC status code of a refusal.
func code(r protocol.Refusal) codes.Code {
	if r == protocol.TooMuch {
		return codes.ResourceExhausted
	}
	return codes.InvalidArgument
}

// perform carries out all actions but Send and Connect, which need more than the action.
func (s *Stream) perform(a protocol.Action) {
	o := s.server.options.Observer
	switch a.Kind {
	case protocol.Send, protocol.Connect:
	case protocol.Close:
		s.end(status.Error(code(a.Refusal), a.Text))
	case protocol.Acked:
		var took time.Duration
		if p := a.State.Published; !p.IsZero() {
			took = time.Since(p)
		}
		o.Acked(a.Type, a.State, took)
	case protocol.Rejected:
		node, attach := s.attached()
		s.server.options.Log.Warn("client rejected a response", "stream", s.id, "node", node, "type", a.Type, "names", a.Names, "reason", a.Text)
		o.Rejected(a.Type, node, a.Text)
		if attach != nil && (a.Type.PerProxy() || len(a.Names) > 0) {
			attach.Refuse(a.Type, a.Names, a.Text)
		}
	case protocol.Recovered:
		if _, attach := s.attached(); attach != nil {
			attach.Refuse(a.Type, a.Names, "")
		}
	case protocol.Pinned:
		if _, attach := s.attached(); attach != nil {
			attach.Pin(a.Pins, a.Text)
		}
	case protocol.Want:
		s.want(a)
	case protocol.Health:
		if _, attach := s.attached(); attach != nil {
			attach.Health(a.Healthy, a.Text)
		}
	case protocol.Applied:
		if _, attach := s.attached(); attach != nil {
			attach.Applied(a.Warming, a.Draining)
		}
	case protocol.Expired:
		o.Expired(a.Type)
	case protocol.Unknown:
		o.Unknown(a.Text)
	case protocol.Linger:
		time.AfterFunc(lingerTime, func() {
			defer s.guard()
			s.step(protocol.Event{Lingered: true})
		})
	case protocol.Wait:
		time.AfterFunc(a.For, s.wake)
	}
}

// want passes on what the client asks for by name, unless all streams of the client ask for too much.
func (s *Stream) want(a protocol.Action) {
	node, attach := s.attached()
	if a.Type == resource.VirtualHost {
		if err := s.server.clients.askHosts(s.held, len(a.Names), len(a.Dropped), s.server.options.MaxHostsOf); err != nil {
			// The stream does not end: the workload has chosen the names, and its other hosts must be updated.
			s.step(protocol.Event{Denied: a.Names})
			a.Names = nil
			if !s.held.full {
				s.held.full, a.Text = true, err.Error()
			}
		}
	} else if err := s.server.clients.ask(s.held, len(a.Names)-len(a.Dropped), s.server.options.MaxWantsOf); err != nil {
		s.end(err)
		return
	}
	if a.Text != "" {
		s.server.options.Log.Warn("names refused", "stream", s.id, "node", node, "type", a.Type, "reason", a.Text)
	}
	if attach == nil {
		return
	}
	if a.Text != "" {
		attach.NoteFull(a.Text)
	}
	if len(a.Names)+len(a.Dropped) > 0 {
		attach.Want(a.Type, a.Names, a.Dropped)
	}
}
