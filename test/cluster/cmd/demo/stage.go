package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
	"github.com/pilotmesh/pilot/test/cluster/standard"
	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/testbed"
)

// stage is everything the demo runs.
type stage struct {
	*tour.Screen
	*mesh.Mesh
	tour    *tour.Tour
	root    string
	cluster *cluster.Cluster
	edits   *edits
	missing bool     // the control plane
	before  []string // the objects of the cluster before the installation
}

// The methods of stage and of mesh.Mesh make it a tour.Bookstore.
var _ tour.Bookstore = (*stage)(nil)

// open starts all parts. If it fails, close stops the parts that it has started.
func (s *stage) open(ctx context.Context) error {
	s.Line(s.In(tour.Bold, "A bookstore on Kubernetes: four services, one of them in three versions, and a sidecar in each pod"))
	s.Picture()
	for _, part := range []struct {
		what  string
		start func(context.Context) error
	}{
		{"Kubernetes: a control plane, and two nodes whose pods are processes", s.startCluster},
		{"pilotctl install: Pilot's control plane, in a pod", func(ctx context.Context) error { return s.Install(ctx) }},
		{"kubectl label namespace bookstore istio-injection=enabled", func(ctx context.Context) error { return s.Label(ctx) }},
		{"kubectl apply: the bookstore, which knows nothing of a mesh; each pod gets a proxy", func(ctx context.Context) error { return s.Deploy(ctx) }},
		{"the first customer", s.welcome},
	} {
		if err := s.Step(part.what, func() error { return part.start(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) startCluster(ctx context.Context) (err error) {
	if s.cluster, err = standard.Start(ctx, cluster.Options{Nodes: 2}, mesh.Images); err != nil {
		return err
	}
	if s.Mesh, err = mesh.New(s.cluster); err != nil {
		return err
	}
	s.before, err = s.Objects(ctx)
	return err
}

// welcome opens the shop for customers.
func (s *stage) welcome(ctx context.Context) (err error) {
	if s.edits, err = follow(s.cluster.Config()); err != nil {
		return err
	}
	shop, err := s.Pod(ctx, "shop")
	if err != nil {
		return err
	}
	catalog, err := s.Pod(ctx, "catalog")
	if err != nil {
		return err
	}
	s.tour = &tour.Tour{Screen: s.Screen, Bookstore: s, What: "API server", Pilotctl: s.pilotctl(), Questions: tour.Questions(shop, catalog, "--address="+s.HTTP)}
	return s.tour.Open(ctx, func() error { return nil })
}

func (s *stage) pilotctl() string { return filepath.Join(s.root, "bin", "pilotctl") }

// Routes implements tour.Bookstore.
func (s *stage) Routes() (string, error) {
	text, err := os.ReadFile(s.Sample("config/routes.yaml"))
	return string(text), err
}

// Edit implements tour.Bookstore: an edit is made when the API server reports it. The time of kubectl itself is not counted.
func (s *stage) Edit(ctx context.Context, routes string) (time.Time, error) {
	s.Edited()
	if _, err := s.Kubectl(ctx, routes, "apply", "-f", "-"); err != nil {
		return time.Time{}, err
	}
	var made time.Time
	err := testbed.Until(ctx, "the API server to report the edit", func(context.Context) error {
		at, edited := s.Edited()
		if made = at; !edited {
			return fmt.Errorf("nothing came")
		}
		return nil
	})
	return made, err
}

// Edited implements tour.Bookstore.
func (s *stage) Edited() (since time.Time, edited bool) { return s.edits.take() }

// ahead is how much sooner than this program the control plane may hear of an edit.
const ahead = 50 * time.Millisecond

// Settled implements tour.Bookstore.
func (s *stage) Settled(ctx context.Context, edited time.Time) (testbed.Settled, error) {
	settled, err := s.AwaitSettled(ctx, edited.Add(-ahead))
	settled.Took -= ahead
	return settled, err
}

// Control implements tour.Bookstore: Kubernetes looks after the control plane, so this only reports.
func (s *stage) Control(ctx context.Context) (news []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = s.Get(ctx, "/ready")
	switch was := s.missing; {
	case err != nil && !was:
		s.missing = true
		news = append(news, s.In(tour.Yellow, "the control plane is gone; requests continue"))
	case err == nil && was:
		s.missing = false
		news = append(news, s.In(tour.Green, "the control plane is back"))
	}
	return news, nil
}

// next prints suggestions to try while everything runs.
func (s *stage) next(ctx context.Context) error {
	reviews, err := s.Pods(ctx, "reviews")
	if err != nil {
		return err
	}
	v3 := reviews[len(reviews)-1].Name
	try := func(name string) string { return "kubectl apply -f samples/bookstore/try/" + name + ".yaml" }
	s.tour.Next(":\n\n  export KUBECONFIG="+s.cluster.Kubeconfig()+"\n  alias kubectl="+s.cluster.Kubectl(), s.pilotctl(), []tour.Hint{
		{What: "be a customer", How: "curl -i http://" + s.Shop() + "/"},
		{What: "edit the weights", How: "kubectl -n bookstore edit virtualservice reviews"},
		{What: "route by a header", How: try("header") + "\ncurl -H 'end-user: alma' http://" + s.Shop() + "/"},
		{What: "inject faults", How: try("fault")},
		{What: "mirror", How: try("mirror")},
		{What: "make a mistake", How: try("broken")},
		{What: "more of a service", How: "kubectl -n bookstore scale deployment reviews-v2 --replicas=3"},
		{What: "look at an Envoy", How: "kubectl -n bookstore exec " + v3 + " -c " + mesh.Sidecar + " -- pilot-agent request GET clusters"},
		{What: "crash the control plane", How: "kubectl -n istio-system exec deploy/istiod -- kill -QUIT 1   # requests continue; Kubernetes starts it again"},
		{What: "look inside", How: "curl http://" + s.HTTP + "/debug"},
	})
	return nil
}

// cleaning is how long the kernel may take to end what the cluster ran.
const cleaning = 10 * time.Second

// close stops everything that was started, and returns an error if something is left of the cluster.
func (s *stage) close() error {
	if s.tour != nil {
		s.tour.Stop()
	}
	if s.edits != nil {
		s.edits.close()
	}
	if s.cluster == nil {
		return nil
	}
	devices, dir := s.cluster.Devices(), s.cluster.Dir()
	if err := s.cluster.Close(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleaning)
	defer cancel()
	if left := standard.Left(ctx, devices, dir); len(left) > 0 {
		return fmt.Errorf("the cluster has left behind: %s", strings.Join(left, "; "))
	}
	return nil
}
