// Package serving tests that a control plane on a real Kubernetes serves API servers and proxies while its certificates, roots, webhooks, revisions and
// replicas change. It holds tests only. They share one cluster, leave it as they found it, and do not run side by side.
package serving

import (
	"os"
	"testing"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/clustertest"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
	"github.com/pilotmesh/pilot/test/cluster/operator"
)

var shared clustertest.Shared

func TestMain(m *testing.M) {
	os.Exit(shared.Main(m, cluster.Options{Nodes: 1}, mesh.Images))
}

// user is a person with pilotctl and kubectl.
type user struct{ *operator.User }

func on(t *testing.T) *user {
	t.Helper()
	return &user{operator.New(t, shared.For(t))}
}
