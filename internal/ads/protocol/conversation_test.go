package protocol

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

var update = flag.Bool("update", false, "rewrite the conversations in testdata from what the core does")

// A conversation file holds conversations. Each begins with "== delta: rule rule ..." (or sotw, or split: delta with route configurations in
// the split form), which names the rules it shows; testdata/rules.txt lists all rules. Then come commands, and under each what the core did:
//
//	state 2: CDS a=2 -b; RDS 80[x=1>a]   publish; the text changes the world before it, see world
//	CDS names=a,b                        a State-of-the-World request; also nonce=…, err="…", version=…
//	CDS sub=a,b drop=c init=a:1          a delta request; init says which content the client has
//	ack CDS, nack CDS "text"             answer the last response of the type, with the names of the last request
//	answer SDS a=1 -b                    the mesh's answers to names; -b: there is none
//	slow / written                       writes take until "written"; otherwise they are done at once
//	lingered                             time passed since "! linger"
//	passed 300ms                         time passes; a Wait of the core that ends in this time ends
//	status CDS                           what the client has not acknowledged or has rejected, and whether it had all when it connected
//	new                                  another stream, on the same server
//	first a,b                            the clusters that a client with hosts on demand has before it asks for a host
//
// A request carries the nonce given, none by default. The first one of a stream carries a node unless it says nonode.
// What the core did: "< CDS 1c r1: a=1 -b" is a response (nonce, revision or version, contents, removals; "of 2"
// if a part of it is left out for size), "! …" is any other action.

type conversation struct {
	variant Variant
	shared  *Shared
	core    *Core
	world   *world
	state   *resource.State
	split   bool
	// demand is set for a client with hosts on demand, and first the clusters that it has at first.
	demand   bool
	first    names
	nodeGo   bool // the node was sent
	connects int
	nonces   [resource.VirtualHost + 1]string
	names    [resource.VirtualHost + 1]string // of the last State-of-the-World request
	slow     bool
	clock    time.Time
	alarm    time.Time // when the Wait ends; zero if none is running
	out      *strings.Builder
}

func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name == "rules.txt" || name == "mutations.txt" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			got, err := play(string(text))
			must(t, err)
			if *update {
				must(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			if got != string(text) {
				t.Errorf("%s differs; run with -update and read the difference\n%s", file, firstDifference(string(text), got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d:\n want %s\n got  %s\n in:\n%s", i+1, w[i], g[i], strings.Join(g[max(0, i-8):i+1], "\n"))
		}
	}
	return "one is longer"
}

// play runs the commands of a file and returns it with what the core did under each.
func play(text string) (string, error) {
	var out strings.Builder
	var c *conversation
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "< ") || strings.HasPrefix(trimmed, "! ") {
			continue
		}
		out.WriteString(line + "\n")
		if head, ok := strings.CutPrefix(trimmed, "== "); ok {
			c = newConversation(head, &out)
			continue
		}
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		if c == nil {
			return "", fmt.Errorf("line %d: a command outside a conversation", i+1)
		}
		if err := c.command(trimmed); err != nil {
			return "", fmt.Errorf("line %d: %s: %w", i+1, trimmed, err)
		}
	}
	return out.String(), nil
}

func newConversation(head string, out *strings.Builder) *conversation {
	c := &conversation{shared: NewShared("test"), world: newWorld(), clock: time.Unix(1, 0), out: out}
	c.demand = strings.HasPrefix(head, "demand")
	c.split = c.demand || strings.HasPrefix(head, "split")
	if c.split || strings.HasPrefix(head, "delta") {
		c.variant = Delta
	}
	c.fresh()
	return c
}

func (c *conversation) fresh() {
	c.core, c.nodeGo, c.slow, c.connects = NewCore(c.shared, c.variant), false, false, 0
	if c.split {
		c.core.SplitRoutes()
	}
	if c.demand {
		c.core.DemandHosts()
	}
	c.alarm = time.Time{}
	c.nonces, c.names = [resource.VirtualHost + 1]string{}, [resource.VirtualHost + 1]string{}
}

func (c *conversation) command(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "state":
		return c.publish(rest)
	case "first": // the clusters that a client with hosts on demand has at first
		c.first = nameset.Of(list(rest))
	case "again": // the same state under another revision, as a commit elsewhere makes it
		s := *c.state
		s.Revision++
		c.state = &s
		c.step(Event{State: c.state})
	case "new":
		c.fresh()
		if c.state != nil {
			c.step(Event{State: c.state})
		}
	case "answer":
		return c.answer(rest)
	case "slow":
		c.slow = true
	case "lingered":
		c.step(Event{Lingered: true})
	case "written":
		c.step(Event{Sent: true})
	case "passed":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return err
		}
		c.pass(d)
	case "status":
		return c.showStatus(rest)
	case "settled":
		now := c.core.Status()
		rev, ok := now.Settled()
		fmt.Fprintf(c.out, "  ! %d %v\n", rev, ok)
	case "ack":
		t, err := parseShort(rest)
		if err != nil {
			return err
		}
		return c.request(t.URL(), "nonce="+c.nonces[t]+" names="+c.names[t])
	case "nack":
		short, reason, _ := strings.Cut(rest, " ")
		t, err := parseShort(short)
		if err != nil {
			return err
		}
		return c.request(t.URL(), "nonce="+c.nonces[t]+" names="+c.names[t]+" err="+reason)
	default:
		url := word
		if t, err := parseShort(word); err == nil {
			url = t.URL()
		}
		return c.request(url, rest)
	}
	return nil
}

// publish changes the world and publishes its state: "2: CDS a=1".
func (c *conversation) publish(text string) error {
	var rev store.Revision
	head, edit, _ := strings.Cut(text, ":")
	if _, err := fmt.Sscan(head, &rev); err != nil {
		return err
	}
	if err := c.world.edit(edit); err != nil {
		return err
	}
	c.state = c.world.state(rev)
	c.state.First = c.first
	c.step(Event{State: c.state})
	return nil
}

// showStatus shows the status of a type.
func (c *conversation) showStatus(short string) error {
	t, err := parseShort(short)
	switch {
	case err != nil:
		return err
	case t.PerProxy() || t == resource.VirtualHost:
		c.wanted(t)
	default:
		c.status(c.core.Status()[t])
	}
	return nil
}

// options cuts `a=b c="d e"` into its parts.
func options(text string) map[string]string {
	all := map[string]string{}
	quoted := false
	for _, f := range strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	}) {
		k, v, _ := strings.Cut(f, "=")
		all[k] = strings.Trim(v, `"`)
	}
	return all
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func (c *conversation) request(url, text string) error {
	o := options(text)
	var node *corev3.Node
	if _, no := o["nonode"]; !c.nodeGo && !no {
		node, c.nodeGo = &corev3.Node{Id: "n"}, true
	}
	if _, other := o["othernode"]; other {
		node = &corev3.Node{Id: "another"}
	}
	var detail *statuspb.Status
	if e, ok := o["err"]; ok {
		detail = &statuspb.Status{Code: 13, Message: e}
	}
	var m proto.Message
	if c.variant == Delta {
		q := &discoveryv3.DeltaDiscoveryRequest{
			Node: node, TypeUrl: url, ResponseNonce: o["nonce"], ErrorDetail: detail,
			ResourceNamesSubscribe: list(o["sub"]), ResourceNamesUnsubscribe: list(o["drop"]),
		}
		for _, f := range list(o["init"]) {
			name, mark, _ := strings.Cut(f, ":")
			if q.InitialResourceVersions == nil {
				q.InitialResourceVersions = map[string]string{}
			}
			q.InitialResourceVersions[name] = c.version(url, name, mark)
		}
		m = q
	} else {
		if t, ok := resource.ParseType(url); ok {
			c.names[t] = o["names"]
		}
		m = &discoveryv3.DiscoveryRequest{
			Node: node, TypeUrl: url, ResponseNonce: o["nonce"], ErrorDetail: detail, VersionInfo: o["version"],
			ResourceNames: list(o["names"]),
		}
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err
	}
	q, err := request.Scan(c.variant, raw)
	if err != nil {
		return err
	}
	c.step(Event{Request: q})
	return nil
}

// version is the version of some content, even if the world no longer has it.
func (c *conversation) version(url, name, mark string) string {
	t, _ := resource.ParseType(url)
	switch {
	case c.demand && t == resource.VirtualHost:
		return demanded(name, mark).Version()
	case c.demand && t == resource.Route && resource.OnDemandRoute(name):
		return c.world.resource(t, name).DemandHead().Version()
	case t == resource.VirtualHost:
		return c.world.hostVersion(name, mark)
	case c.split && t == resource.Route && mark == "now":
		return c.world.resource(t, name).Head().Version()
	case c.split && t == resource.Route && mark != "whole":
		return resource.NewRoute(name, header(name, mark), omap.Map[omap.Name, *resource.Piece]{}).Head().Version()
	case mark == "now":
		return c.world.resource(t, name).Version()
	}
	return newResource(t, name, mark).Version()
}

// pass advances the clock. A Wait ends when its time has come.
func (c *conversation) pass(d time.Duration) {
	end := c.clock.Add(d)
	for !c.alarm.IsZero() && !c.alarm.After(end) {
		c.clock, c.alarm = c.alarm, time.Time{}
		c.step(Event{Waited: true})
	}
	c.clock = end
}

// answer gives the core the mesh's answers to names.
func (c *conversation) answer(text string) error {
	short, text, _ := strings.Cut(text, " ")
	t, err := parseShort(short)
	if err != nil {
		return err
	}
	var answers []Answer
	for _, f := range strings.Fields(text) {
		name, mark, ok := strings.Cut(f, "=")
		a := Answer{Type: t, Name: strings.TrimPrefix(name, "-")}
		if ok {
			if a.Resource = demanded(name, mark); t != resource.VirtualHost {
				a.Resource = resource.New(t, name, message(t, name, mark))
			}
		}
		answers = append(answers, a)
	}
	c.step(Event{Answers: answers})
	return nil
}

// demanded is a virtual host on demand.
func demanded(name, mark string) *resource.Resource {
	route, authority, _ := strings.Cut(name, "/")
	return newTestPiece("piece", mark).Demanded(route, authority)
}

// wanted shows the status of a type that is answered per proxy.
func (c *conversation) wanted(t resource.Type) {
	for _, s := range c.core.Wants() {
		if s.Type == t {
			fmt.Fprintf(c.out, "  ! %d names, missing %v, unanswered %v, rejected %q%s\n", s.Names, s.Missing, s.Unanswered, s.Rejected, map[bool]string{true: ", owed"}[s.Owed])
		}
	}
}

func (c *conversation) status(s TypeStatus) {
	fmt.Fprintf(c.out, "  ! sent r%d acked r%d", s.Sent, s.Acked)
	for _, u := range s.Unacked {
		fmt.Fprintf(c.out, " %s:r%d:%v", u.Name, u.Revision, c.clock.Sub(u.Since))
	}
	if s.HeldBack > 0 {
		fmt.Fprintf(c.out, " held back %d", s.HeldBack)
	}
	if s.Rejected != "" {
		fmt.Fprintf(c.out, " rejected %q", s.Rejected)
	}
	if s.Nonce == "" && s.Behind.IsZero() {
		fmt.Fprint(c.out, " has all")
	}
	fmt.Fprintln(c.out)
}

func (c *conversation) step(e Event) {
	e.At = c.clock
	for _, a := range c.core.Step(e, nil) {
		c.report(a)
	}
}

func (c *conversation) report(a Action) {
	switch a.Kind {
	case Send:
		c.nonces[a.Type] = a.Nonce
		fmt.Fprintf(c.out, "  < %s\n", describe(c.variant, a))
		if !c.slow {
			c.step(Event{Sent: true})
		}
	case Connect:
		c.connects++ // every stream has one, at its first request
		if c.connects > 1 {
			fmt.Fprintf(c.out, "  ! connected again\n")
		}
	case Close:
		fmt.Fprintf(c.out, "  ! close %s: %s\n", a.Refusal, a.Text)
	case Acked:
		fmt.Fprintf(c.out, "  ! acked %s r%d\n", a.Type, a.State.Revision)
	case Rejected:
		fmt.Fprintf(c.out, "  ! rejected %s: %s\n", a.Type, a.Text)
	case Pinned:
		for _, p := range a.Pins {
			fmt.Fprintf(c.out, "  ! pinned %s\n", describePin(p))
		}
	case Expired:
		fmt.Fprintf(c.out, "  ! expired %s\n", a.Type)
	case Linger:
		fmt.Fprintf(c.out, "  ! linger\n")
	case Wait:
		c.alarm = c.clock.Add(max(a.For, 0))
		if a.For <= 0 {
			c.pass(0)
		}
	case Recovered:
		fmt.Fprintf(c.out, "  ! cleared %s %v\n", a.Type, a.Names)
	case Want:
		fmt.Fprintf(c.out, "  ! want %s %v, not %v\n", a.Type, a.Names, a.Dropped)
	case Health:
		fmt.Fprintf(c.out, "  ! health %v %q\n", a.Healthy, a.Text)
	case Applied:
		fmt.Fprintf(c.out, "  ! applied, but for %v\n", a.Warming)
	case Unknown:
		fmt.Fprintf(c.out, "  ! unknown %q\n", a.Text)
	}
}

func describePin(p reject.Pin) string {
	text := p.Type.String() + " " + p.Name
	if p.Piece != "" {
		text += "[" + p.Piece + "]"
	}
	switch {
	case p.Held != nil:
		m, _ := p.Held.Proto()
		text += " held at " + show(m)
	case p.HeldPiece != nil:
		text += " held at its last content"
	}
	return text
}

// wire is the message as it is written.
func wire(a Action) []byte {
	return append(bytes.Join(a.Message.Parts, nil), response.NonceField(a.Nonce)...)
}

// describe decodes a response with the generated types, so that it shows the response as a client sees it.
func describe(v Variant, a Action) string {
	raw := wire(a)
	var text []string
	head := ""
	if v == Delta {
		var m discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			return err.Error()
		}
		head = fmt.Sprintf("%s %s r%s:", a.Type, m.Nonce, m.SystemVersionInfo)
		if a.Type.PerProxy() {
			head = fmt.Sprintf("%s %s v%.4s:", a.Type, m.Nonce, m.SystemVersionInfo)
		}
		for _, r := range m.Resources {
			text = append(text, showResource(a.Type, m.TypeUrl, r))
		}
		for _, n := range m.RemovedResources {
			text = append(text, "-"+n)
		}
	} else {
		var m discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			return err.Error()
		}
		head = fmt.Sprintf("%s %s v%.4s:", a.Type, m.Nonce, m.VersionInfo)
		for _, r := range m.Resources {
			text = append(text, showResource(a.Type, m.TypeUrl, &discoveryv3.Resource{Resource: r, Version: "-"}))
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(text)))) != len(text) {
		text = append(text, "DUPLICATES")
	}
	return strings.TrimSpace(head + " " + strings.Join(text, " "))
}
