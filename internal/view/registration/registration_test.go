package registration_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/registration"

	"github.com/pilotmesh/pilot/internal/api"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares facts with the golden files. A file has these sections, which are processed in order: config.yaml has all objects of
// the mesh; apply.yaml replaces some of them; proxy connects one that has shown who it is, and
// unknown proxy one that has not: the first line is the node id and the rest metadata as JSON; leave is
// the node id of one that disconnects; pods are the names of the pods of the control plane; facts and problems are the results.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := &world{World: meshtest.NewWith(t, meshtest.Options{ControlNamespace: "istio-system"}), t: t}
			w.Queries.Registrations.Observe(registration.All{}, func(all registration.Map) { w.facts = all })
			w.Put()
			for i := range archive.Files {
				f := &archive.Files[i]
				got, printed := w.section(f.Name, string(f.Data))
				switch {
				case !printed:
				case *update:
					f.Data = []byte(got)
				case got != string(f.Data):
					t.Errorf("%s: %s differs; run with -update if that is meant:\n%s", file, f.Name, meshtest.Difference(string(f.Data), got))
				}
			}
			if !w.facts.Equal(w.Queries.Registrations.Merged(w.Graph.Naive(), registration.All{})) {
				t.Error("the graph and the rows alone say different things")
			}
			w.Check()
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// world is a mesh whose registrations are followed. Each proxy connects a second after the one before.
type world struct {
	*meshtest.World
	t     *testing.T
	facts registration.Map
	clock int64
}

func (w *world) section(name, text string) (got string, printed bool) {
	switch name {
	case "config.yaml":
		w.Load(text)
	case "apply.yaml":
		w.Apply(text)
	case "proxy", "unknown proxy":
		id, metadata, _ := strings.Cut(text, "\n")
		p := meshtest.Node(w.t, id, strings.TrimSpace(metadata))
		if name == "proxy" {
			p.Identity = identity.Identity{TrustDomain: "cluster.local", Namespace: p.Namespace, ServiceAccount: cmp.Or(p.Account, "default")}
		}
		w.clock++
		p.Connected = time.Unix(w.clock, 0).UTC()
		w.Connect(p)
	case "leave":
		w.Commit(func(tx *store.Txn) { w.Tables.Proxies.Delete(tx, strings.TrimSpace(text)) })
	case "health":
		id, message, _ := strings.Cut(strings.TrimSpace(text), " ")
		w.Commit(func(tx *store.Txn) {
			w.Tables.Health.Set(tx, id, connected.Health{State: connected.Unhealthy, Message: message})
		})
	case "pods":
		pods := map[api.Key]kube.Value{}
		for _, name := range strings.Fields(text) {
			pods[api.Key{Kind: kube.KindPod, Namespace: "istio-system", Name: name}] = &kube.Pod{}
		}
		w.Observe(pods)
	case "facts":
		return w.String(), true
	case "problems":
		var b strings.Builder
		for _, p := range w.Problems() {
			b.WriteString(p + "\n")
		}
		return b.String(), true
	default:
		w.t.Fatalf("unknown section %q", name)
	}
	return "", false
}

func (w *world) String() string {
	var b strings.Builder
	for _, f := range w.facts.All() {
		fmt.Fprintf(&b, "%s/%s\n", f.Key.Namespace, f.Key.Name)
		if !f.Connected.IsZero() {
			fmt.Fprintf(&b, "  asked for by %s since %d\n", f.Proxy, f.Connected.Unix())
		}
		if r := f.Registered; r.Group != "" {
			fmt.Fprintf(&b, "  in the cluster: group %s, replica %s", r.Group, r.Controller)
			if !r.Disconnected.IsZero() {
				b.WriteString(", disconnected")
			}
			if f.Gone {
				b.WriteString(", which is gone")
			}
			fmt.Fprintf(&b, "; health %d\n", r.Health)
		}
		if f.Health.State != connected.HealthUnknown {
			fmt.Fprintf(&b, "  reports health %d %s\n", f.Health.State, f.Health.Message)
		}
		if e := f.Entry; e != nil {
			labels, _ := json.Marshal(e.Labels)
			annotations, _ := json.Marshal(e.Annotations)
			fmt.Fprintf(&b, "  labels %s\n  annotations %s\n", labels, annotations)
			s := e.Spec
			fmt.Fprintf(&b, "  at %s, network %q, locality %q, account %q, weight %d, ports %v\n", s.Address, s.Network, s.Locality, s.ServiceAccount, s.Weight, s.Ports)
		}
	}
	return b.String()
}
