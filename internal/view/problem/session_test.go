package problem_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

// TestSessions: a Service of a cluster with a label for sessions has one warning, unless the control plane keeps sessions.
func TestSessions(t *testing.T) {
	for _, on := range []bool{false, true} {
		w := meshtest.NewWith(t, meshtest.Options{ClusterID: "west", Sessions: on})
		k := api.Key{Kind: kube.KindService, Namespace: "shop", Name: "a", Cluster: "west"}
		s := &kube.Service{
			Created: 1, Type: kube.ClusterIP, Addresses: []string{"10.96.0.1"}, Session: mesh.Session{Cookie: "id", Path: "/"},
			Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.HTTP}, {Name: "more", Number: 81, Protocol: mesh.HTTP}},
		}
		w.Observe(map[api.Key]kube.Value{k: s})
		w.Check()
		if got := slices.DeleteFunc(w.Problems(), func(p string) bool { return !strings.Contains(p, "istio.io/persistent-session") }); on != (len(got) == 0) || len(got) > 1 {
			t.Errorf("sessions %t: the problems are %q", on, got)
		}
		plain := *s
		plain.Session = mesh.Session{}
		w.Observe(map[api.Key]kube.Value{k: &plain})
		if got := w.Problems(); len(got) > 0 {
			t.Errorf("without the label: %q", got)
		}
		w.Check()
	}
}
