package allocation_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/allocation"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// world is a mesh whose addresses are followed.
type world struct {
	*meshtest.World
	changes allocation.Changes
}

func newWorld(t meshtest.T) *world {
	w := &world{World: meshtest.New(t)}
	w.Queries.Addresses.Observe(allocation.All{}, func(all allocation.Changes) { w.changes = all })
	w.Put()
	return w
}

// write applies the changes: it writes the statuses.
func (w *world) write(t meshtest.T) {
	t.Helper()
	var written []*api.Object
	for _, c := range w.changes.All() {
		o, _ := w.Tables.Objects.Peek(c.Key)
		now := *o
		now.Allocated = c.Want
		sealed, err := now.Seal()
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, sealed)
	}
	w.Put(written...)
}

func (w *world) String() string {
	var b strings.Builder
	for _, c := range w.changes.All() {
		fmt.Fprintf(&b, "%s/%s\n", c.Key.Namespace, c.Key.Name)
		for _, a := range c.Has {
			if !slices.Contains(c.Want, a) {
				fmt.Fprintf(&b, "  - %s %s\n", a.Host, a.Address)
			}
		}
		for _, a := range c.Want {
			if !slices.Contains(c.Has, a) {
				fmt.Fprintf(&b, "  + %s %s\n", a.Host, a.Address)
			}
		}
		for _, host := range c.Full {
			fmt.Fprintf(&b, "  no address is left for %s\n", host)
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// TestGolden compares the statuses to write with the golden files. A file has these sections, which are processed in order: config.yaml
// has all objects of the mesh; apply.yaml replaces some of them; write writes the statuses; changes lists the changes to write.
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
			w := newWorld(t)
			for i := range archive.Files {
				f := &archive.Files[i]
				switch f.Name {
				case "config.yaml":
					w.Load(string(f.Data))
				case "apply.yaml":
					w.Apply(string(f.Data))
				case "write":
					w.write(t)
				case "changes":
					if got := w.String(); *update {
						f.Data = []byte(got)
					} else if got != string(f.Data) {
						t.Errorf("%s: run with -update if that is meant:\n%s", file, meshtest.Difference(string(f.Data), got))
					}
				default:
					t.Fatalf("unknown section %q", f.Name)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestNoTwoHaveOneAddress: from any state, after one write no host has an address that an older host has or that an object names;
// after more writes every host has addresses, and nothing is left to write. A host that alone had an address keeps it.
func TestNoTwoHaveOneAddress(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		var objects []*api.Object
		few := rapid.SampledFrom([]string{"240.240.1.1", "240.240.1.2", "240.240.9.9", "2001:2::1", "2001:2::2"})
		for i := range rapid.IntRange(1, 12).Draw(rt, "entries") {
			spec := &networking.ServiceEntry{Resolution: networking.ServiceEntry_STATIC, Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}}}
			spec.Hosts = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a.test", "b.test", "c.test", "*.d.test"}), 1, 3, rapid.ID).Draw(rt, "hosts")
			o := api.Object{
				Key:     api.Key{Namespace: rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "namespace"), Name: fmt.Sprint("e", i)},
				Created: time.Unix(int64(rapid.IntRange(1, 3).Draw(rt, "created")), 0), Spec: spec,
			}
			switch rapid.IntRange(0, 3).Draw(rt, "how") {
			case 0:
				spec.Addresses = []string{few.Draw(rt, "names")}
			case 1:
				o.Allocated = []api.Allocation{{Host: spec.Hosts[0], Address: few.Draw(rt, "has")}}
			}
			sealed, err := o.Seal()
			if err != nil {
				rt.Fatal(err)
			}
			objects = append(objects, sealed)
		}
		before := addresses(objects)
		w.Put(objects...)
		if !w.changes.Equal(w.Queries.Addresses.Merged(w.Graph.Naive(), allocation.All{})) {
			rt.Error("the graph and the rows alone decide differently")
		}
		w.write(rt)
		after := addresses(w.all())
		for ip, holders := range after {
			if len(holders) > 1 && !slices.ContainsFunc(holders, func(h string) bool { return strings.HasPrefix(h, "names") }) {
				rt.Errorf("%s belongs to %v", ip, holders)
			}
		}
		for ip, holders := range before {
			if len(holders) == 1 && !strings.Contains(holders[0], "*") && !slices.Equal(after[ip], holders) {
				rt.Errorf("%s belonged to %v, and now to %v", ip, holders, after[ip])
			}
		}
		if got := w.String(); got != "nothing\n" {
			rt.Errorf("after everything is written there is still to write:\n%s", got)
		}
		for _, o := range w.all() {
			if want := 2 * len(state.OwnHosts(o)); state.Allocates(o) && len(o.Allocated) != want {
				rt.Errorf("%s has %v, want %d addresses", o.Key, o.Allocated, want)
			}
		}
	})
}

func (w *world) all() (list []*api.Object) {
	for _, o := range w.Tables.Objects.All() {
		list = append(list, o)
	}
	return list
}

// addresses returns the holders of each address: the hosts that have it and the objects that name it.
func addresses(objects []*api.Object) map[netip.Addr][]string {
	all := map[netip.Addr][]string{}
	for _, o := range objects {
		for _, a := range o.Allocated {
			ip := netip.MustParseAddr(a.Address)
			all[ip] = append(all[ip], o.Name+" "+a.Host)
		}
		for _, a := range o.Spec.(*networking.ServiceEntry).Addresses {
			ip := netip.MustParseAddr(a)
			all[ip] = append(all[ip], "names "+o.Name)
		}
	}
	return all
}

// TestRangeWithoutRoom: every address of a small range is given away, and the objects beyond it say so.
func TestRangeWithoutRoom(t *testing.T) {
	tables := mesh.Ranges{IPv4: netip.MustParsePrefix("10.1.1.0/28"), IPv6: netip.MustParsePrefix("2001:2::/48")}
	w := &world{World: meshtest.NewWith(t, meshtest.Options{Ranges: tables})}
	w.Queries.Addresses.Observe(allocation.All{}, func(all allocation.Changes) { w.changes = all })
	var text strings.Builder
	for i := range 17 {
		fmt.Fprintf(&text, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e%02d, namespace: a, creationTimestamp: "2026-01-01T00:00:%02dZ"}
spec: {hosts: [h%[1]d.test], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}
---`, i, i)
	}
	w.Apply(text.String())
	full, given := 0, map[string]bool{}
	for _, c := range w.changes.All() {
		full += len(c.Full)
		for _, a := range c.Want {
			if strings.HasPrefix(a.Address, "10.") {
				given[a.Address] = true
			}
		}
	}
	if full != 2 || len(given) != 15 {
		t.Errorf("%d hosts have no address and %d addresses are given away, want 2 and 15:\n%s", full, len(given), w)
	}
}

// entries is the text of ServiceEntries without addresses, with numbers from one to another.
func entries(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e%d, namespace: ns%d, creationTimestamp: "2025-01-01T00:00:00Z"}
spec: {hosts: [e%[1]d.example.com], resolution: DNS, ports: [{number: 5432, name: tcp, protocol: TCP}]}
`, i, i%20)
	}
	return b.String()
}

// TestBlocks checks that new addresses are outside of blocks if something is left there. With blocks that leave nothing, hosts keep their
// addresses, and new ones get some.
func TestBlocks(t *testing.T) {
	w := newWorld(t)
	var halves []string
	for i := range 64 { // half of each section
		halves = append(halves, fmt.Sprintf("240.240.%d.0/23", 4*i))
	}
	block := func(name string, blocks ...string) {
		w.Apply(fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: evil, creationTimestamp: "2024-01-01T00:00:00Z"}
spec: {hosts: [%[1]s.internal], exportTo: ["."], addresses: [%s], resolution: NONE, ports: [{number: 5432, name: tcp, protocol: TCP}]}
`, name, strings.Join(blocks, ", ")))
	}
	block("halves", halves...)
	w.Apply(entries(0, 300))
	for ip := range w.wanted() {
		if ip.Is4() && ip.As4()[2]%4 < 2 {
			t.Errorf("%s is in a block", ip)
		}
	}
	for range 5 {
		w.write(t)
	}
	block("everything", `"0.0.0.0/0"`, `"::/0"`, "240.240.0.0/16")
	block("parts", "240.240.0.0/17", "240.240.128.0/17")
	if got := w.String(); got != "nothing\n" {
		t.Errorf("hosts lose addresses:\n%s", got)
	}
	problems := 0
	for _, p := range w.Problems() {
		if strings.Contains(p, "which are allocated to other ServiceEntries") && strings.Contains(p, "evil/") {
			problems++
		}
	}
	if problems != 5 {
		t.Errorf("%d problems of wide blocks, want 5: %q", problems, w.Problems())
	}
	w.Apply(entries(300, 600))
	if got := w.String(); strings.Contains(got, "  - ") || strings.Contains(got, "no address is left") || len(w.wanted()) != 2*300 {
		t.Errorf("new hosts have %d addresses:\n%s", len(w.wanted()), got)
	}
}

// wanted are the addresses to write.
func (w *world) wanted() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, c := range w.changes.All() {
		for _, a := range c.Want {
			all[netip.MustParseAddr(a.Address)] = true
		}
	}
	return all
}
