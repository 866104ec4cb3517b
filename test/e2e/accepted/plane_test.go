package accepted

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/test/testbed"
)

const sourceName = "drawn"

// reporter is the part of testing.TB that reading documents needs.
type reporter interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// plane is a control plane in this process, and the configuration that it has.
type plane struct {
	loop    *loop.Loop
	streams *server.Server
	commits chan loop.Commit
	objects map[api.Key]bool
	values  map[api.Key]bool
	round   int
	base    []*api.Object
}

// newPlane starts a control plane that serves proxies at a socket until the test ends.
func newPlane(t *testing.T, socket string) *plane {
	t.Helper()
	p := &plane{commits: make(chan loop.Commit, 1000), objects: map[api.Key]bool{}, values: map[api.Key]bool{}}
	for _, d := range api.Decode("base.yaml", []byte(base)) {
		d.Check()
		if d.Object == nil {
			t.Fatal(d.Problems)
		}
		p.base = append(p.base, d.Object)
	}
	tables := state.New(state.Options{Sources: []string{sourceName}, ClusterID: "Kubernetes"})
	graph := query.New(tables.DB, query.Options{})
	p.loop = loop.New(tables, graph, class.Define(graph, tables), loop.Settings{Sources: []string{sourceName}, Observe: func(c loop.Commit) {
		if c.Objects[sourceName] > 0 {
			p.commits <- c
		}
	}})
	p.streams = server.New(p.loop, server.Options{})
	rpc := grpc.NewServer(p.streams.GRPC()...)
	p.streams.Register(rpc)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = p.loop.Run(ctx) })
	group.Go(func() { _ = p.streams.Run(ctx) })
	group.Go(func() { _ = rpc.Serve(l) })
	t.Cleanup(func() {
		rpc.Stop()
		cancel()
		group.Wait()
	})
	return p
}

// load replaces the drawn configuration by another one, and returns the revision of the commit. Each load changes an endpoint, so that there is a commit.
func (p *plane) load(ctx context.Context, parts []*part) (store.Revision, error) {
	p.round++
	b := source.Batch{Source: sourceName, Synced: true, Mesh: api.DefaultMesh()}
	events := map[api.Key]source.Event{}
	for k := range p.objects {
		events[k] = source.Event{Key: k}
	}
	for k := range p.values {
		events[k] = source.Event{Key: k}
	}
	clear(p.objects)
	clear(p.values)
	marker := fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: base-marker, namespace: shop}, spec: {hosts: [marker.shop.svc.cluster.local],
  location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 7777, name: tcp, protocol: TCP}], addresses: [10.9.9.9], endpoints: [{address: 10.%d.%d.%d}]}}`, p.round>>16, p.round>>8&255, p.round&255)
	for _, o := range append([]*api.Object{api.Decode("marker.yaml", []byte(marker))[0].Object}, p.base...) {
		events[o.Key] = source.Event{Key: o.Key, Object: o}
	}
	for _, one := range parts {
		switch {
		case one.mesh != nil:
			b.Mesh = one.mesh
		case one.object != nil:
			events[one.object.Key] = source.Event{Key: one.object.Key, Object: one.object}
			p.objects[one.object.Key] = true
		}
		for _, item := range one.values {
			events[item.Key] = source.Event{Key: item.Key, Value: item.Value}
			p.values[item.Key] = true
		}
	}
	b.Events = slices.SortedFunc(maps.Values(events), func(a, b source.Event) int { return a.Key.Compare(b.Key) })
	for len(p.commits) > 0 {
		<-p.commits
	}
	p.loop.Apply(b)
	select {
	case c := <-p.commits:
		return c.Revision, nil
	case <-ctx.Done():
		return 0, errors.New("the control plane does not commit the configuration")
	}
}

// settle waits until all proxies have acknowledged a revision, or have rejected a part of it and nothing is under way any more.
func (p *plane) settle(ctx context.Context, revision store.Revision, envoys []*envoy) error {
	var quiet time.Time // since when nothing is under way after a rejection
	return testbed.Until(ctx, "every Envoy to acknowledge the configuration", func(context.Context) error {
		for _, e := range envoys {
			if e.process.Alive() != nil {
				return nil // try reports it
			}
		}
		streams := p.streams.Streams()
		if len(streams) < len(envoys) {
			return fmt.Errorf("%d of %d Envoys are connected", len(streams), len(envoys))
		}
		var behind error
		rejected, flying := false, false
		for i := range streams {
			if at, ok := streams[i].Types.Settled(); !ok || at < revision {
				behind = fmt.Errorf("%s: %s", streams[i].Node, lag(&streams[i], revision))
			}
			for _, t := range streams[i].Types {
				rejected, flying = rejected || t.Rejected != "" || t.HeldBack > 0, flying || t.InFlight
			}
		}
		switch {
		case !rejected || flying:
			quiet = time.Time{}
		case quiet.IsZero():
			quiet = time.Now()
		case time.Since(quiet) > calm:
			return nil
		}
		return behind
	})
}

// calm is how long nothing is under way before a rejection counts as the end.
const calm = 200 * time.Millisecond

// lag describes which types of a stream are behind.
func lag(s *server.Status, revision store.Revision) string {
	var list []string
	for _, t := range s.Types {
		if t.Subscribed && t.Acked < revision {
			list = append(list, fmt.Sprintf("%v acknowledged %d of %d, in flight %v, unacknowledged %v, rejected %q", t.Type, t.Acked, revision, t.InFlight, t.Unacked, t.Rejected))
		}
	}
	return strings.Join(list, "; ")
}

// failure is why a mesh fails the test.
type failure struct {
	// kind is equal for failures with the same cause, as far as the text shows.
	kind, text string
	// fatal is true if the Envoys have to be started again.
	fatal bool
	// byEnvoy is true if it is a rejection or an end of an Envoy.
	byEnvoy bool
	// about are the objects in question, if they are known.
	about []api.Key
}

// patience is how long an Envoy may take to acknowledge.
const patience = 15 * time.Second

// try loads a configuration, and returns its failures.
func (p *plane) try(envoys []*envoy, parts []*part) []failure {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	revision, err := p.load(ctx, parts)
	if err != nil {
		return []failure{{kind: "no commit", text: err.Error(), fatal: true}}
	}
	late := p.settle(ctx, revision, envoys)
	var found []failure
	for _, e := range envoys {
		if err := e.process.Alive(); err != nil {
			found = append(found, failure{kind: "crash of Envoy", text: err.Error(), fatal: true, byEnvoy: true})
		}
	}
	look, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	list, err := loop.Look(look, p.loop, func(v *loop.View) []failure { return p.judge(v) })
	if err != nil {
		return append(found, failure{kind: "inspect", text: err.Error(), fatal: true})
	}
	found = append(found, list...)
	if late != nil && len(found) == 0 {
		found = append(found, failure{kind: "not acknowledged", text: late.Error()})
	}
	return found
}

// judge lists the faults of translations, and what proxies reject.
func (p *plane) judge(v *loop.View) (list []failure) {
	for _, f := range v.Graph.Faults() {
		text := fmt.Sprintf("%+v", f)
		list = append(list, failure{kind: "fault: " + kindOf(text), text: text})
	}
	for _, s := range p.streams.Streams() {
		for _, r := range v.Queries.ActiveRejections(v.Graph.Glance(), s.Attachment) {
			about := r.Objects
			if r.Object != (api.Key{}) {
				about = []api.Key{r.Object}
			}
			list = append(list, failure{
				kind: "rejection: " + kindOf(r.Cause()), about: about, byEnvoy: true,
				text: fmt.Sprintf("%s rejects %q %s (made of %v, field %q): %s", s.Node, r.Name, r.VirtualHost(), about, r.Field, r.Cause()),
			})
		}
	}
	return list
}

// kindOf is a text without the parts that differ from mesh to mesh.
func kindOf(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	text = variable.ReplaceAllString(text, "…")
	return text[:min(len(text), 160)]
}
