package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/test/conformance/client"
	"github.com/pilotmesh/pilot/test/testbed"
)

// follower holds what a sidecar would: it accepts everything at once, comes back when the control plane does, and then states the versions that it
// has. Hundreds of rounds with followers take as long as one with Envoys, which drain removed listeners.
type follower struct {
	client.Options

	mu     sync.Mutex
	held   map[client.Type]map[string]*client.Resource // by type and name; no entry for a type that was never answered
	faults []client.Fault                              // of all streams that have ended
}

// followed are the types to which a follower subscribes with a wildcard.
func followed() []client.Type { return []client.Type{client.CDS, client.LDS} }

func newFollower(target string, n testbed.Node) (*follower, error) {
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": n.Namespace, "INTERCEPTION_MODE": "NONE", "INSTANCE_IPS": n.IP})
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", n.IP, n.Name, n.Namespace, n.Namespace)
	o := client.Options{Address: target, Variant: client.Delta, Node: &corev3.Node{Id: id, Metadata: metadata}, Checker: client.NewChecker()}
	return &follower{Options: o, held: map[client.Type]map[string]*client.Resource{}}, nil
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for ctx.Err() == nil {
		_ = f.stream(ctx) // the control plane is killed again and again
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
	}
}

// stream follows until the control plane ends the stream.
func (f *follower) stream(ctx context.Context) error {
	c, err := client.Open(ctx, f.Options)
	if err != nil {
		return err
	}
	defer c.Close()
	defer f.blame(c)
	for _, t := range followed() {
		c.Adopt(t, f.has(t))
		if err := c.Resume(t, c.Versions(t)); err != nil {
			return err
		}
	}
	for {
		r, err := c.Next(ctx)
		if err != nil {
			return err
		}
		if r.Known {
			f.take(r.Type, c.Held(r.Type))
		}
	}
}

func (f *follower) take(t client.Type, held map[string]*client.Resource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[t] = maps.Clone(held)
}

// blame notes what the control plane did on a stream that it may never do.
func (f *follower) blame(c *client.Client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, c.Faults...)
}

// has is what the follower has of a type, nil if the type was never answered.
func (f *follower) has(t client.Type) map[string]*client.Resource {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held[t] // which is never changed, only replaced
}

// differs says in what a follower differs from another; nothing if they have the same and the other has something.
func (f *follower) differs(from *follower) string {
	var lines []string
	for _, t := range followed() {
		has, want := f.has(t), from.has(t)
		if want == nil {
			lines = append(lines, t.String()+": nothing after a cold start yet")
		}
		for name, r := range has {
			if w := want[name]; w == nil || w.Version != r.Version {
				lines = append(lines, fmt.Sprintf("%s %s: it has %s, after a cold start %s", t, name, r.Version, version(w)))
			}
		}
		for name := range want {
			if has[name] == nil {
				lines = append(lines, fmt.Sprintf("%s %s: only after a cold start", t, name))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func version(r *client.Resource) string {
	if r == nil {
		return "nothing"
	}
	return r.Version
}
