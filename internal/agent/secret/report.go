package secret

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/pilotmesh/pilot/internal/agent/upstream"
	"github.com/pilotmesh/pilot/internal/run/retry"
)

const (
	// Shortest and longest backoff between attempts to reach the control plane.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// Reporter reports to the control plane which secrets Envoy has requested and cannot get, or not in their newest version, so
// that operators see them among the problems. While there is something to report it has its own xDS stream: it requests the
// secret, the control plane answers that there is none, and the NACK of that answer carries the reason.
type Reporter struct {
	board *Board
	dial  func() (*grpc.ClientConn, error)
	node  *corev3.Node
	log   *slog.Logger
}

// NewReporter returns a reporter for the agent of a proxy. dial opens a connection to the control plane.
func NewReporter(board *Board, dial func() (*grpc.ClientConn, error), proxy *corev3.Node, log *slog.Logger) *Reporter {
	return &Reporter{board: board, dial: dial, node: upstream.AgentNode(proxy), log: log}
}

// problems returns, by name, why secrets cannot be served, or why a newer version cannot.
func problems(v *View) map[string]string {
	all := map[string]string{}
	for name, e := range v.Entries {
		switch {
		case e.Streams == 0:
		case e.Refusal != "":
			all[name] = "Envoy rejects it: " + e.Refusal
		case e.State == StateKept:
			all[name] = "the newest version cannot be used, and the last good one stays in use: " + e.Problem
		case e.State == StateMissing:
			all[name] = e.Problem
		}
	}
	return all
}

// Run reports until ctx is cancelled. It retries if the control plane cannot be reached; Envoy's own stream shows that problem.
func (r *Reporter) Run(ctx context.Context) error {
	for pauses := retry.Pauses(firstRetry, lastRetry); ctx.Err() == nil; {
		if v := r.board.View(); len(problems(v)) == 0 {
			pauses.Reset()
			select {
			case <-v.Next:
			case <-ctx.Done():
			}
			continue
		}
		err := r.stream(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		pause := pauses.NextBackOff()
		r.log.Debug("missing secrets cannot be reported to the control plane", "error", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// stream reports on one stream until nothing is left to report. The end of the stream withdraws all reports.
func (r *Reporter) stream(ctx context.Context) error {
	s, err := upstream.OpenStream(ctx, r.dial)
	if err != nil {
		return err
	}
	defer s.Close()
	told := report{node: r.node, told: map[string]string{}}
	for {
		v := r.board.View()
		now := problems(v)
		if len(now) == 0 {
			return nil
		}
		if q := told.next(now); q != nil {
			if err := s.Send(q); err != nil {
				return err
			}
		}
		select {
		case <-v.Next:
		case m := <-s.Responses:
			if err := s.Send(told.answer(m, now)); err != nil {
				return err
			}
		case err := <-s.Ended:
			return err
		}
	}
}

// report is the state of a stream: the reasons that it has reported, and the name whose response it awaits. It reports one
// secret at a time, because a NACK has one reason.
type report struct {
	node    *corev3.Node // nil once it was sent
	told    map[string]string
	waiting string
}

// next returns the request to be sent now, or nil if there is none.
func (r *report) next(now map[string]string) *discoveryv3.DeltaDiscoveryRequest {
	if r.waiting != "" {
		return nil
	}
	q := &discoveryv3.DeltaDiscoveryRequest{Node: r.node, TypeUrl: typeURL}
	for _, name := range slices.Sorted(maps.Keys(r.told)) {
		if _, still := now[name]; !still {
			q.ResourceNamesUnsubscribe = append(q.ResourceNamesUnsubscribe, name)
			delete(r.told, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if r.told[name] != now[name] {
			q.ResourceNamesSubscribe, r.waiting = []string{name}, name
			break
		}
	}
	if len(q.ResourceNamesSubscribe)+len(q.ResourceNamesUnsubscribe) == 0 {
		return nil
	}
	r.node = nil
	return q
}

// answer returns the request that answers a response: a NACK with the problem of the awaited secret, or an ACK.
func (r *report) answer(m *discoveryv3.DeltaDiscoveryResponse, now map[string]string) *discoveryv3.DeltaDiscoveryRequest {
	q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}
	about := slices.Contains(m.GetRemovedResources(), r.waiting) ||
		slices.ContainsFunc(m.GetResources(), func(res *discoveryv3.Resource) bool { return res.GetName() == r.waiting })
	if r.waiting == "" || !about {
		return q
	}
	if reason := now[r.waiting]; reason != "" {
		q.ErrorDetail = &rpcstatus.Status{Code: int32(codes.NotFound), Message: reason}
		r.told[r.waiting] = reason
	} else {
		r.told[r.waiting] = "" // the problem is resolved; next unsubscribes
	}
	r.waiting = ""
	return q
}
