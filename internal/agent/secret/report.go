package secret

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

const (
	// agentRole is the role of an agent's own stream, in the place of its proxy's in the node id.
	agentRole = "agent"
	// The first and the longest time between two attempts to reach the control plane.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// Reporter tells the control plane which secrets Envoy asks for and cannot have, or not the newest of, so that operators find it
// among the problems there, too. While there is something to tell it has a stream of its own: it asks for the secret, the control
// plane answers that it has none either, and the rejection of that answer carries the reason.
type Reporter struct {
	board  *Board
	target string
	node   *corev3.Node
	log    *slog.Logger
}

// NewReporter returns a reporter to the control plane at target, for the agent of a proxy.
func NewReporter(board *Board, target string, proxy *corev3.Node, log *slog.Logger) *Reporter {
	node := proto.CloneOf(proxy)
	if _, rest, ok := strings.Cut(node.GetId(), "~"); ok {
		node.Id = agentRole + "~" + rest
	}
	return &Reporter{board: board, target: target, node: node, log: log}
}

// complaints are the reasons why secrets are not, or not newly, served, by name.
func complaints(v *View) map[string]string {
	all := map[string]string{}
	for name, e := range v.Entries {
		switch {
		case e.Streams == 0:
		case e.Refusal != "":
			all[name] = "Envoy rejects it: " + e.Refusal
		case e.State == Kept:
			all[name] = "the newest is not good, and the last good one stays in use: " + e.Problem
		case e.State == Missing:
			all[name] = e.Problem
		}
	}
	return all
}

// Run reports until ctx is cancelled. A control plane that cannot be reached is tried again: Envoy's own stream tells of it.
func (r *Reporter) Run(ctx context.Context) error {
	for retry := firstRetry; ctx.Err() == nil; {
		if v := r.board.View(); len(complaints(v)) == 0 {
			retry = firstRetry
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
		r.log.Debug("the control plane cannot be told of secrets that are missing", "error", err, "retry", retry)
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
		retry = min(2*retry, lastRetry)
	}
	return nil
}

// stream reports on one stream until there is nothing left to report, which ends it: what it told goes with it.
func (r *Reporter) stream(ctx context.Context) error {
	conn, err := grpc.NewClient(r.target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	responses, failed := make(chan *discoveryv3.DeltaDiscoveryResponse), make(chan error, 1)
	defer func() {
		cancel()
		_ = conn.Close() // nothing was buffered
		<-failed         //nolint:errcheck // why it ended is known by now
	}()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		failed <- nil
		return err
	}
	go func() {
		defer close(failed)
		for {
			m, err := s.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case responses <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	told := report{node: r.node, told: map[string]string{}}
	for {
		v := r.board.View()
		now := complaints(v)
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
		case m := <-responses:
			if err := s.Send(told.answer(m, now)); err != nil {
				return err
			}
		case err := <-failed:
			failed <- nil
			return err
		}
	}
}

// report is where a stream stands: what it told, and the name it waits for an answer to. One is told at a time, because a
// rejection has one reason.
type report struct {
	node    *corev3.Node // nil once it was sent
	told    map[string]string
	waiting string
}

// next is the request to be sent now; nil if there is none.
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

// answer is what is said to a response: what is wrong with the secret that was asked for, or nothing.
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
		r.told[r.waiting] = "" // it is well again: next takes it back
	}
	r.waiting = ""
	return q
}
