package why_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// TestConversations plays the files of testdata. Files ending in .yaml are the mesh and are loaded together. "proxy"
// connects a proxy (a node id, then metadata as JSON). "mesh settings" is the MeshConfig. "rejected" is "TYPE name", then the reason of the proxy. "ask" is
// "KIND name", and "answer" the expected text of the answer. "request" describes a request by lines of "NAME VALUE", and "decision" is
// the expected text of what becomes of it. "ingress" is a host of Ingresses, or empty for all, and "served" the expected text of what
// gateways serve.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no conversations", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { play(t, file) })
	}
}

// conversation is a mesh and the proxy that is asked about.
type conversation struct {
	*testing.T
	*meshtest.World
	connection string
	state      *resource.State
	question   string
}

func play(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &conversation{T: t, World: meshtest.New(t)}
	c.load(archive.Files)
	for i := range archive.Files {
		f := &archive.Files[i]
		text := strings.TrimSpace(string(f.Data))
		switch {
		case strings.HasSuffix(f.Name, ".yaml"):
		case f.Name == "mesh settings":
			c.Configure(text)
		case f.Name == "request":
			c.question = text
		case f.Name == "proxy":
			id, metadata, _ := strings.Cut(text, "\n")
			c.connection = id
			c.Queries.Class.Observe(id, func(proxy.Class, bool) {})
			c.state = c.State(c.Connect(meshtest.Node(t, id, metadata)))
		case f.Name == "rejected":
			c.reject(text)
		case f.Name == "ask", f.Name == "ingress":
			c.question = text
		case f.Name == "answer", f.Name == "decision", f.Name == "served":
			got := map[string]func() string{"answer": c.ask, "decision": c.decide, "served": c.served}[f.Name]()
			if *update {
				f.Data = []byte(got)
			} else if !bytes.Equal(f.Data, []byte(got)) {
				t.Errorf("%s: %s; run with -update if that is meant:\n%s", file, c.question, got)
			}
		default:
			t.Fatalf("%s: unknown section %q", file, f.Name)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// load loads the mesh as the file source does: refused documents become problems.
func (c *conversation) load(files []txtar.File) {
	var objects []*api.Object
	var problems []api.Problem
	for _, f := range files {
		if !strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		for _, d := range api.Decode(f.Name, f.Data) {
			d.Check()
			problems = append(problems, d.Problems...)
			if d.Object != nil {
				objects = append(objects, d.Object)
			}
		}
	}
	batch := c.Batch(objects...)
	batch.Problems = source.ProblemEvents(nil, problems)
	c.Commit(func(tx *store.Txn) { c.Tables.Apply(tx, batch) })
}

// reject writes the rows that the loop writes for a rejection.
func (c *conversation) reject(text string) {
	head, reason, _ := strings.Cut(text, "\n")
	kind, name, _ := strings.Cut(head, " ")
	typ, ok := resource.ParseKind(kind)
	r, has := c.state.Get(typ, name)
	if !ok || !has {
		c.Fatalf("there is no %s to reject", head)
	}
	key, _ := c.Queries.Class.Get(c.Graph.Glance(), c.connection)
	what := connected.RejectedContent{Rejectable: connected.Rejectable{Type: uint8(typ), Name: name}, Content: r.ContentHash()}
	finding := c.Queries.Finding(c.Graph, key, what, reason)
	c.Commit(func(tx *store.Txn) {
		c.Tables.Origins.Set(tx, what, finding)
		c.Tables.Rejections.Set(tx, connected.RejectionKey{Connection: c.connection, RejectedContent: what}, connected.Rejection{
			Proxy: c.connection, Reason: reason, At: time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC),
		})
	})
}

func (c *conversation) problems() (all state.Problems) {
	return c.Queries.Problems.Merged(c.Graph.Glance(), class.All{})
}

func (c *conversation) ask() string {
	kind, name, _ := strings.Cut(c.question, " ")
	cells := c.Graph.Cells()
	m := why.Mesh{Tables: c.Tables, Graph: c.Graph, Queries: c.Queries, Problems: c.problems()}
	a, err := m.Ask(why.Question{Connection: c.connection, State: c.state, Kind: kind, Name: name})
	if err != nil {
		return err.Error() + "\n"
	}
	a.Complete()
	if len(c.Graph.Cells()) != len(cells) {
		c.Errorf("%s: the question left cells behind", c.question)
	}
	if a.Verdict == why.Absent && len(a.Reasons) == 0 {
		c.Errorf("%s: something is missing, and the answer does not say why", c.question)
	}
	c.roundTrip(a)
	var text strings.Builder
	if err := a.Write(&text); err != nil {
		c.Fatal(err)
	}
	return text.String()
}

// decide asks what becomes of a request. The description goes over a URL, and the answer over JSON, as they do to pilotctl.
func (c *conversation) decide() string {
	q := url.Values{}
	for line := range strings.Lines(c.question) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		q.Add(name, value)
	}
	d, err := why.DescribedBy(q)
	if err != nil {
		return err.Error() + "\n"
	}
	if again, err := why.DescribedBy(d.Query()); err != nil || !slices.Equal(again.Headers, d.Headers) || again.To != d.To || again.Plaintext != d.Plaintext {
		c.Errorf("%+v is %+v after it went over a URL (%v)", d, again, err)
	}
	cells := c.Graph.Cells()
	m := why.Mesh{Tables: c.Tables, Graph: c.Graph, Queries: c.Queries}
	a, err := m.AskAccess(d)
	if err != nil {
		return err.Error() + "\n"
	}
	a.Complete()
	if len(c.Graph.Cells()) != len(cells) {
		c.Errorf("%s: the question left cells behind", c.question)
	}
	return c.overJSON(a, &why.Access{})
}

// served asks about Ingresses. The answer goes over JSON, as it does to pilotctl.
func (c *conversation) served() string {
	cells := c.Graph.Cells()
	a := why.Mesh{Tables: c.Tables, Graph: c.Graph, Queries: c.Queries}.AskIngress(c.question)
	a.Complete()
	if len(c.Graph.Cells()) != len(cells) {
		c.Errorf("%s: the question left cells behind", c.question)
	}
	return c.overJSON(a, &why.Ingresses{})
}

// roundTrip checks that an answer has the same text after it was written as JSON and read.
func (c *conversation) roundTrip(a *why.Answer) {
	var one strings.Builder
	if err := a.Write(&one); err != nil {
		c.Fatal(err)
	}
	if two := c.overJSON(a, &why.Answer{}); one.String() != two {
		c.Errorf("%s: JSON loses something:\n%s\nis not\n%s", c.question, two, one.String())
	}
}

// overJSON writes an answer as pilotctl does, which reads it from JSON into again.
func (c *conversation) overJSON(answer, again interface{ Write(w io.Writer) error }) string {
	body, err := json.Marshal(answer)
	if err != nil {
		c.Fatal(err)
	}
	if err := json.Unmarshal(body, again); err != nil {
		c.Fatal(err)
	}
	var text strings.Builder
	if err := again.Write(&text); err != nil {
		c.Fatal(err)
	}
	return text.String()
}
