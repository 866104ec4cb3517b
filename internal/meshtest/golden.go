package meshtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Golden compares what proxies are sent with golden files. A golden file is a txtar archive in testdata of the package whose
// rule it is about. It holds a comment and then these sections, which are processed in order:
//
//   - mesh.yaml: the MeshConfig, if it is not the default. networks.yaml: the MeshNetworks. config.yaml: all objects of the mesh.
//   - proxy: connects a proxy. The first line is its node id, the rest its metadata as JSON. The sections below are about it.
//   - show: lines of "TYPE PATTERN", such as "RDS 80". They select the resources that later want sections print.
//   - want: the selected resources as YAML. names: the type and name of every resource. domains: every virtual host with its
//     domains. chains: how connections to the workload are handled, a line per filter chain. problems: all problems of the mesh.
//
// Whatever a file prints, every resource of every proxy must be valid, be accepted by a real Envoy if there is one, and be
// traced to the layer that shows it.
type Golden struct {
	// Update rewrites the golden files instead of comparing.
	Update bool
	// Envoy is the path of the Envoy to test with. If it is empty, FindEnvoy looks for one.
	Envoy string
}

// Run runs one subtest per file testdata/*.txtar.
func (g Golden) Run(t *testing.T) {
	t.Helper()
	PlayFiles(t, g.Update, func(t *testing.T, _ []txtar.File) func(name, text string) (string, bool) {
		run := goldenRun{Golden: g, t: t, world: New(t)}
		return run.section
	})
}

// goldenRun is the state of one golden file while its sections are processed.
type goldenRun struct {
	Golden
	t     *testing.T
	world *World
	state *resource.State // of the proxy that was connected last
	show  []string        // the lines of the last show section
}

// section processes one section. printed is false if the section is input.
func (g *goldenRun) section(name, text string) (got string, printed bool) {
	g.t.Helper()
	switch name {
	case "mesh.yaml":
		g.world.Configure(text)
	case "networks.yaml":
		g.world.ConfigureNetworks(text)
	case "config.yaml":
		g.world.Load(text)
	case "proxy":
		id, metadata, _ := strings.Cut(text, "\n")
		class := g.world.Connect(Node(g.t, id, strings.TrimSpace(metadata)))
		g.state = g.world.State(class)
		g.checkValid()
		g.checkTraces(class)
	case "show":
		g.show = strings.Split(strings.TrimSpace(text), "\n")
	case "want":
		return Print(g.t, g.state, func(typ resource.Type, name string) bool {
			return slices.ContainsFunc(g.show, func(line string) bool { return selects(line, typ, name) })
		}), true
	case "names":
		return allNames(g.state), true
	case "domains":
		return Domains(g.t, g.state), true
	case "chains":
		return chains(g.t, g.state), true
	case "problems":
		return joinLines(g.world.Problems()), true
	default:
		g.t.Fatalf("unknown section %q", name)
	}
	return "", false
}

// checkValid checks the state with every available check: naive evaluation, the generated validation, Envoy.
func (g *goldenRun) checkValid() {
	g.t.Helper()
	g.world.Check()
	Validate(g.t, g.state)
	envoy, err := FindEnvoy(g.Envoy)
	if err != nil {
		g.t.Log("not shown to a real Envoy:", err)
		return
	}
	Accept(g.t, envoy, g.t.TempDir(), g.state)
}

// checkTraces checks that every resource and every virtual host is traced, and every resource to the layer that shows it.
func (g *goldenRun) checkTraces(c proxy.Class) {
	g.t.Helper()
	w := g.world
	for typ := range resource.Type(resource.Types) {
		for r := range g.state.Types[typ].All() {
			got, ok := w.Queries.Trace(w.Graph, c, typ, r.Name(), "")
			if !ok || got.Resource != r {
				g.t.Errorf("%v %s: traced %t to layer %q, which does not show it", typ, r.Name(), ok, got.Layer)
			}
			for piece := range r.Pieces().All() {
				if piece == "allow_any" || piece == "block_all" || piece == "blackhole" {
					continue // the virtual host for undeclared hosts is made of settings alone, or of nothing
				}
				if _, ok := w.Queries.Trace(w.Graph, c, typ, r.Name(), string(piece)); !ok {
					g.t.Errorf("%v %s: its virtual host %q is not traced", typ, r.Name(), piece)
				}
			}
		}
	}
}

// selects reports whether a line of a show section selects a resource.
func selects(line string, typ resource.Type, name string) bool {
	kind, pattern, _ := strings.Cut(line, " ")
	ok, err := path.Match(pattern, name)
	return err == nil && ok && kind == typ.String()
}

// allNames lists the type and name of every resource of a state.
func allNames(s *resource.State) string {
	var out strings.Builder
	for typ := range resource.Type(resource.Types) {
		for _, name := range Names(s, typ) {
			fmt.Fprintln(&out, typ, name)
		}
	}
	return out.String()
}

func joinLines(lines []string) string {
	var out strings.Builder
	for _, line := range lines {
		fmt.Fprintln(&out, line)
	}
	return out.String()
}

// Difference lists the lines that differ between two texts, up to about 4,000 characters.
func Difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	for i := range max(len(a), len(b)) {
		x, y := "", ""
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			fmt.Fprintf(&out, "line %d: want %q, got %q\n", i+1, x, y)
		}
		if out.Len() > 4000 {
			break
		}
	}
	return out.String()
}
