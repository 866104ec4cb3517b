package why_test

import (
	"encoding/json"
	"flag"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// TestConversations plays the files of testdata. Files ending in .yaml are the mesh and are loaded together. "proxy"
// connects a proxy (a node id, then metadata as JSON). "mesh settings" is the MeshConfig. "rejected" is "TYPE name", then the reason of the proxy. "ask" is
// "KIND name", and "answer" the expected text of the answer. "request" describes a request by lines of "NAME VALUE", and "decision" is
// the expected text of what becomes of it. With a section "routed only", gateways have the clusters only of the services to which they route.
func TestConversations(t *testing.T) {
	meshtest.PlayFiles(t, *update, func(t *testing.T, all []txtar.File) func(name, text string) (string, bool) {
		routed := slices.ContainsFunc(all, func(f txtar.File) bool { return f.Name == routedOnly })
		c := &conversation{T: t, World: meshtest.NewWith(t, meshtest.Options{FilterGatewayClusters: routed})}
		c.LoadFiles(all)
		return c.section
	})
}

const routedOnly = "routed only"

// conversation is a mesh and the proxy that is asked about.
type conversation struct {
	*testing.T
	*meshtest.World
	connection string
	state      *resource.State
	question   string
}

func (c *conversation) section(name, text string) (string, bool) {
	text = strings.TrimSpace(text)
	switch {
	case strings.HasSuffix(name, ".yaml"), name == routedOnly:
	case name == "mesh settings":
		c.Configure(text)
	case name == "request", name == "ask":
		c.question = text
	case name == "proxy":
		id, metadata, _ := strings.Cut(text, "\n")
		c.connection = id
		c.Queries.Class.Observe(id, func(proxy.Class, bool) {})
		c.state = c.State(c.Connect(meshtest.Node(c.T, id, metadata)))
	case name == "rejected":
		c.reject(text)
	case name == "answer":
		return c.ask(), true
	case name == "decision":
		return c.decide(), true
	default:
		c.Fatalf("unknown section %q", name)
	}
	return "", false
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
	if a.Verdict == reply.Absent && len(a.Reasons) == 0 {
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
	d, err := described.RequestBy(q)
	if err != nil {
		return err.Error() + "\n"
	}
	if again, err := described.RequestBy(d.Query()); err != nil || !slices.Equal(again.Headers, d.Headers) || again.To != d.To || again.Plaintext != d.Plaintext {
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

// roundTrip checks that an answer has the same text after it was written as JSON and read.
func (c *conversation) roundTrip(a *reply.Answer) {
	var one strings.Builder
	if err := a.Write(&one); err != nil {
		c.Fatal(err)
	}
	if two := c.overJSON(a, &reply.Answer{}); one.String() != two {
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
