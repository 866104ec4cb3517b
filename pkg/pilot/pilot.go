// Package pilot runs a control plane inside another program: a test, or a platform that makes the configuration of the mesh itself.
//
// A Mesh is the control plane of pilot-discovery, with the same engine and the same resources for the same configuration. It reads no files, no
// cluster and no environment: the program hands it YAML documents of the kinds that pilot-discovery reads from files, and it serves
// xDS without TLS on a listener of the program, so the program decides which clients may connect. It has no certificate authority, no debug
// pages, and does not fetch key sets or Secrets.
//
// Invariants: One call of Apply or Delete is one change of the mesh. An object that is refused leaves its last good version in force.
//
// Goroutines: Serve starts all of them, and returns when they have ended.
package pilot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source/memory"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

const (
	// sourceName is the name of the source of configuration in logs.
	sourceName = "memory"
	// drain is how long proxies may take to leave when the control plane ends.
	drain = 5 * time.Second
)

// Options are settings of a Mesh. The zero value is ready to use.
type Options struct {
	// MeshConfig is the mesh configuration as YAML; empty for the default one.
	MeshConfig string
	// Domain is the DNS domain of the services (default cluster.local).
	Domain string
	// ClusterID is the name of the cluster that the proxies are in (default Kubernetes).
	ClusterID string
	// Log is where the control plane logs (default: nowhere).
	Log *slog.Logger
}

// Mesh is a control plane and the configuration of its mesh, in memory. Its methods may be called from any goroutine.
type Mesh struct {
	source *memory.Source
	loop   *loop.Loop
	server *server.Server
	log    *slog.Logger
}

// New returns a mesh without objects. The error names the mistakes in the mesh configuration.
func New(o Options) (*Mesh, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mesh{source: memory.New(sourceName), log: o.Log}
	settings := api.DefaultMesh()
	if o.MeshConfig != "" {
		decoded, problems := api.DecodeMesh("mesh configuration", []byte(o.MeshConfig))
		if err := errorOf(problems); err != nil {
			return nil, err
		}
		settings = decoded
	}
	m.source.Update(func(t *memory.Tx) { t.Mesh(settings) })
	tables := state.New(state.Options{Domain: o.Domain, ClusterID: o.ClusterID, Sources: []string{sourceName}})
	graph := query.New(tables.DB, query.Options{})
	m.loop = loop.New(tables, graph, class.Define(graph, tables), loop.Settings{Sources: []string{sourceName}, Log: o.Log})
	m.server = server.New(m.loop, server.Options{ControlPlane: "pilot", Log: o.Log})
	return m, nil
}

// Apply adds or replaces the objects of YAML documents as one change. It may be called before, during and after Serve. The error joins one
// for each object that is refused; the last good version of such an object stays in force, and all other objects are applied.
func (m *Mesh) Apply(documents string) error {
	var unknown []api.Problem // of documents that name no object
	problems := m.source.Update(func(t *memory.Tx) {
		for _, d := range api.Decode("documents", []byte(documents)) {
			d.Check()
			switch {
			case d.Object != nil:
				t.Set(d.Object)
			case d.Key.Name != "":
				t.Refuse(d.Key, d.Problems, d.Denying)
			default:
				unknown = append(unknown, d.Problems...)
			}
		}
	})
	return errorOf(append(problems, unknown...))
}

// Delete removes an object, such as a ServiceEntry. Nothing happens if it does not exist.
func (m *Mesh) Delete(kind, namespace, name string) error {
	if !slices.ContainsFunc(api.Kinds(), func(k api.Kind) bool { return k.Name == kind }) {
		return fmt.Errorf("delete %s/%s: %q is no kind of configuration, such as ServiceEntry", namespace, name, kind)
	}
	m.source.Delete(api.Key{Kind: kind, Namespace: namespace, Name: name})
	return nil
}

// Problem is a mistake in the configuration, or a conflict between objects, that the control plane found.
type Problem struct {
	// Kind, Namespace and Name name the object. They are empty if the problem is not about one object.
	Kind, Namespace, Name string
	// Severity is error, warning or info, and Code a stable name of the kind of problem, which doc/problems.md explains.
	Severity, Code string
	// Field is the field of the object in question; empty for the whole object.
	Field string
	// Text names the mistake and the remedy.
	Text string
}

// settling is the time between two looks at a configuration whose problems are not all known yet.
const settling = 5 * time.Millisecond

// Problems returns the problems of the present configuration. It waits until Serve has taken the configuration over.
func (m *Mesh) Problems(ctx context.Context) ([]Problem, error) {
	again := time.NewTicker(settling)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the problems of the mesh: %w", ctx.Err())
		}
		var pending bool
		list, err := loop.Look(ctx, m.loop, func(v *loop.View) []Problem {
			pending = v.Graph.Pending()
			return problemsOf(v)
		})
		if err != nil || !pending {
			return list, err
		}
	}
}

func problemsOf(v *loop.View) (list []Problem) {
	for _, p := range v.Problems.All() {
		list = append(list, Problem{
			Kind: p.Object.Kind, Namespace: p.Object.Namespace, Name: p.Object.Name,
			Severity: p.Severity.String(), Code: string(p.Code), Field: p.Field, Text: p.Reason,
		})
	}
	return list
}

// Serve runs the control plane and serves xDS on l until ctx ends, and closes l. It must be called once.
func (m *Mesh) Serve(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer(m.server.GRPC()...)
	m.server.Register(g)
	group := run.New(m.log, drain)
	group.Add(run.Actor{Name: "loop", Run: m.loop.Run})
	group.Add(run.Actor{Name: sourceName, Run: func(ctx context.Context) error { return m.source.Run(ctx, m.loop) }})
	group.Add(run.Actor{Name: "first commit", Ready: m.loop.Synced(), Run: func(ctx context.Context) error { <-ctx.Done(); return nil }})
	group.Add(run.Actor{Name: "streams", Run: m.server.Run})
	group.Add(run.GRPC("xDS", l, g, m.server.Drain, drain))
	return group.Run(ctx)
}

// errorOf joins the problems that are errors; nil if there is none.
func errorOf(problems []api.Problem) error {
	var list []error
	for _, p := range problems {
		if p.Severity == api.Error {
			list = append(list, errors.New(p.String()))
		}
	}
	return errors.Join(list...)
}
