package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/source/registries"
	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/repo"
)

func sample(t *testing.T) string {
	t.Helper()
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "samples", "registries", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLocalized: the registries file names the servers of the run, and no ZooKeeper where it is missing.
func TestLocalized(t *testing.T) {
	for _, zookeeper := range []string{"127.0.0.1:2", ""} {
		text := localized(sample(t), "127.0.0.1:1", zookeeper)
		f, err := registries.Decode([]byte(text))
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		var got []string
		for _, e := range f.Registries {
			got = append(got, e.Name+" "+strings.Join(e.Addresses, ","))
		}
		want := "consul 127.0.0.1:1; zookeeper 127.0.0.1:2; machines "
		if zookeeper == "" {
			want = "consul 127.0.0.1:1; machines "
		}
		if is := strings.Join(got, "; "); is != want {
			t.Errorf("got %q, want %q", is, want)
		}
		weights := f.Migrations[0].Weights
		if _, named := weights["zookeeper"]; weights["consul"] != 100 || named != (zookeeper != "") {
			t.Errorf("the weights are %v", weights)
		}
	}
}

// TestWeigh: weights are edited in the migration, and nowhere else.
func TestWeigh(t *testing.T) {
	was := sample(t)
	is := weigh(was, tour.Weights{10, 20, 70})
	f, err := registries.Decode([]byte(is))
	if err != nil {
		t.Fatal(err)
	}
	if w := f.Migrations[0].Weights; w["consul"] != 10 || w["ServiceEntry"] != 20 || w["zookeeper"] != 70 {
		t.Errorf("the weights are %v", w)
	}
	if back := weigh(is, tour.Weights{100}); back != was {
		t.Errorf("other parts have changed:\n%s", back)
	}
}

// TestInstance: what applications write into ZooKeeper is what the control plane reads there.
func TestInstance(t *testing.T) {
	for _, dubbo := range []bool{false, true} {
		text := instance(inZooKeeper()[0], 9033, dubbo)
		if !json.Valid([]byte(text)) || strings.Contains(text, "dubbo.endpoints") != dubbo || !strings.Contains(text, `"address":"127.1.0.5"`) {
			t.Errorf("got %s", text)
		}
	}
}
