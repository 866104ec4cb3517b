package cluster_test

import (
	"log/slog"
	"os"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
)

// programs are the paths of a cluster's programs, or empty if they are not built.
func programs() binaries.Paths {
	root, err := binaries.Root()
	if err != nil {
		return binaries.Paths{}
	}
	paths, err := binaries.Find(root, os.Getenv("KUBE_BINARIES"))
	if err != nil {
		return binaries.Paths{}
	}
	return paths
}

// TestControlPlane starts a cluster without nodes, for which no privileges are needed.
func TestControlPlane(t *testing.T) {
	paths := programs()
	if paths.Etcd == "" {
		t.Skip("the programs of a cluster are not built: run `make tools-cluster`")
	}
	c, err := cluster.Start(t.Context(), cluster.Options{Binaries: paths, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.Dir()); err == nil {
			t.Errorf("%s is still there", c.Dir())
		}
	}()
	if _, err := c.Client().CoreV1().ServiceAccounts("default").Get(t.Context(), "default", meta.GetOptions{}); err != nil {
		t.Error(err)
	}
	if err := c.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().CoreV1().Namespaces().Get(t.Context(), "default", meta.GetOptions{}); err != nil {
		t.Error(err)
	}
}
