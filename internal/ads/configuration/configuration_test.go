package configuration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const entries, rules = "networking.istio.io/v1/ServiceEntry", "networking.istio.io/v1/VirtualService"

// client is the other end of a conversation. It keeps the resources that it receives.
type client struct {
	*testing.T
	c       *Conversation
	variant request.Variant
	world   map[string]Map
	has     map[string]map[string]string // by type and name: content
	nonces  map[string]string
}

func newClient(t *testing.T, v request.Variant) *client {
	return &client{t, New(v, "test"), v, map[string]Map{entries: {}, rules: {}}, map[string]map[string]string{}, map[string]string{}}
}

// put sets resources a=1 and removes others -a.
func (c *client) put(url string, changes ...string) {
	var list []omap.Change[omap.Name, *resource.Resource]
	for _, one := range changes {
		if name, ok := strings.CutPrefix(one, "-"); ok {
			list = append(list, omap.Del[omap.Name, *resource.Resource](omap.Name(name)))
			continue
		}
		name, content, _ := strings.Cut(one, "=")
		list = append(list, omap.Put(omap.Name(name), of(name, content)))
	}
	c.world[url] = omap.With(c.world[url], list...)
}

func of(name, content string) *resource.Resource {
	return resource.New(resource.Configuration, name, &corev3.Node{Id: name, Cluster: content})
}

func (c *client) ask(url string, had map[string]string, nonce, refusal string) string {
	c.Helper()
	var q proto.Message
	var detail *rpcstatus.Status
	if refusal != "" {
		detail = &rpcstatus.Status{Message: refusal}
	}
	if c.variant == request.Delta {
		q = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, InitialResourceVersions: had, ResponseNonce: nonce, ErrorDetail: detail}
	} else {
		q = &discoveryv3.DiscoveryRequest{TypeUrl: url, ResponseNonce: nonce, ErrorDetail: detail}
	}
	raw, err := proto.Marshal(q)
	if err != nil {
		c.Fatal(err)
	}
	scanned, err := request.Scan(c.variant, raw)
	if err != nil {
		c.Fatal(err)
	}
	refused, tooMany := c.c.Ask(scanned)
	if refused != refusal && nonce == c.nonces[url] || tooMany {
		c.Errorf("refused %q, too many %v", refused, tooMany)
	}
	return refused
}

func (c *client) ack(url string) { c.Helper(); c.ask(url, nil, c.nonces[url], "") }

// next takes the responses, and returns their content, one response a line.
func (c *client) next() string {
	c.Helper()
	var lines []string
	for _, parts := range c.c.Next(func(url string) (Map, bool) { m, ok := c.world[url]; return m, ok }) {
		raw := bytes.Join(parts, nil)
		var line string
		if c.variant == request.Delta {
			line = c.takeDelta(raw)
		} else {
			line = c.takeWhole(raw)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (c *client) content(url string, list []string, name string, raw []byte) []string {
	n := &corev3.Node{}
	if err := proto.Unmarshal(raw, n); err != nil {
		c.Fatal(err)
	}
	if name != "" && n.Id != name {
		c.Errorf("%s has the content of %s", name, n.Id)
	}
	c.has[url][n.Id] = n.Cluster
	return append(list, n.Id+"="+n.Cluster)
}

func (c *client) takeWhole(raw []byte) string {
	r := &discoveryv3.DiscoveryResponse{}
	if err := proto.Unmarshal(raw, r); err != nil || r.ControlPlane.GetIdentifier() != "test" || r.VersionInfo == "" || r.Nonce == "" {
		c.Errorf("%v, %v", r, err)
	}
	c.nonces[r.TypeUrl] = r.Nonce
	c.has[r.TypeUrl] = map[string]string{}
	var list []string
	for _, a := range r.Resources {
		if a.TypeUrl != "type.googleapis.com/istio.mcp.v1alpha1.Resource" {
			c.Errorf("a resource is a %s", a.TypeUrl)
		}
		list = c.content(r.TypeUrl, list, "", a.Value)
	}
	return fmt.Sprint(kind(r.TypeUrl), list)
}

func kind(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

func (c *client) takeDelta(raw []byte) string {
	r := &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(raw, r); err != nil || r.ControlPlane.GetIdentifier() != "test" || r.Nonce == "" {
		c.Errorf("%v, %v", r, err)
	}
	c.nonces[r.TypeUrl] = r.Nonce
	if c.has[r.TypeUrl] == nil {
		c.has[r.TypeUrl] = map[string]string{}
	}
	var list []string
	for _, one := range r.Resources {
		if one.Version == "" {
			c.Error("a resource has no version")
		}
		list = c.content(r.TypeUrl, list, one.Name, one.Resource.Value)
	}
	for _, name := range slices.Sorted(slices.Values(r.RemovedResources)) {
		delete(c.has[r.TypeUrl], name)
		list = append(list, "-"+name)
	}
	return fmt.Sprint(kind(r.TypeUrl), list)
}

func (c *client) want(what, want string) {
	c.Helper()
	if got := c.next(); got != want {
		c.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestWhole: State-of-the-World. Each response has all resources of its kind; a first request is always answered; one response at a time.
func TestWhole(t *testing.T) {
	c := newClient(t, request.StateOfTheWorld)
	c.put(entries, "shop/a=1", "shop/b=1")
	c.want("nothing is asked for", "")
	c.ask(entries, nil, "of another stream", "")
	c.ask(rules, nil, "", "")
	c.ask("type.of/no/kind", nil, "", "")
	c.world["type.of/no/kind"] = Map{}
	c.want("first", "ServiceEntry[shop/a=1 shop/b=1]\nVirtualService[]\nkind[]")
	c.put(entries, "shop/a=2")
	c.want("not acknowledged", "")
	c.put(entries, "-shop/b")
	c.ask(entries, nil, "stale", "")
	c.want("a stale nonce", "")
	c.ack(entries)
	c.want("acknowledged", "ServiceEntry[shop/a=2]")
	c.ask(entries, nil, c.nonces[entries], "shop/a: no")
	c.want("refused", "")
	c.put(entries, "shop/a=3")
	c.want("after a refusal", "ServiceEntry[shop/a=3]")
	c.put(entries, "shop/a=4")
	c.put(entries, "shop/a=3")
	c.ack(entries)
	c.want("changed and changed back", "")
	c.ack(rules)
	c.put(rules, "shop/r=1")
	c.want("the other kind", "VirtualService[shop/r=1]")
}

// TestDelta: a response has what differs. A client with resources from before is sent new, changed and removed ones.
func TestDelta(t *testing.T) {
	c := newClient(t, request.Delta)
	c.put(entries, "shop/a=1", "shop/b=1", "shop/c=1")
	c.ask(entries, map[string]string{"shop/a": of("shop/a", "1").Version(), "shop/b": of("shop/b", "0").Version(), "shop/c": "", "shop/d": "x"}, "", "")
	c.want("first", "ServiceEntry[shop/b=1 shop/c=1 -shop/d]")
	c.put(entries, "shop/a=2", "-shop/b")
	c.want("not acknowledged", "")
	c.ack(entries)
	c.want("acknowledged", "ServiceEntry[shop/a=2 -shop/b]")
	c.ack(entries)
	c.want("all is there", "")
	c.ask(rules, nil, "", "")
	c.want("an empty kind", "VirtualService[]")
	c.put(rules, "shop/r=1")
	c.ack(rules)
	c.want("of it", "VirtualService[shop/r=1]")
}

// TestUnknownYet: a kind whose resources are not known yet is answered when they are.
func TestUnknownYet(t *testing.T) {
	c := newClient(t, request.Delta)
	delete(c.world, entries)
	c.ask(entries, nil, "", "")
	c.want("before", "")
	c.world[entries] = Map{}
	c.want("then", "ServiceEntry[]")
}

// TestLarge: a large delta response is divided, and the client has all of it once it acknowledges the last part.
func TestLarge(t *testing.T) {
	c := newClient(t, request.Delta)
	for i := range 30 {
		c.put(entries, fmt.Sprintf("shop/%02d=%s", i, strings.Repeat("x", 100<<10)))
	}
	c.ask(entries, nil, "", "")
	if n := strings.Count(c.next(), "ServiceEntry"); n < 3 || n > 4 || len(c.has[entries]) != 30 {
		t.Errorf("%d responses, %d resources", n, len(c.has[entries]))
	}
	c.put(entries, "-shop/01")
	c.ack(entries)
	c.want("then", "ServiceEntry[-shop/01]")
}

// TestManyTypes: a client cannot make the server remember any number of types.
func TestManyTypes(t *testing.T) {
	c := New(request.StateOfTheWorld, "")
	for i := range maxTypes + 1 {
		raw, err := proto.Marshal(&discoveryv3.DiscoveryRequest{TypeUrl: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		q, err := request.Scan(request.StateOfTheWorld, raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, tooMany := c.Ask(q); tooMany != (i == maxTypes) {
			t.Fatalf("type %d: %v", i, tooMany)
		}
	}
}

// TestConverges: whatever changes and is acknowledged when, a client that acknowledges everything has all resources in the end.
func TestConverges(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		for _, v := range []request.Variant{request.StateOfTheWorld, request.Delta} {
			c := newClient(t, v)
			for range 40 {
				url := []string{entries, rules}[rnd.IntN(2)]
				name := fmt.Sprintf("shop/%d", rnd.IntN(4))
				switch rnd.IntN(5) {
				case 0:
					c.put(url, fmt.Sprintf("%s=%d", name, rnd.IntN(3)))
				case 1:
					c.put(url, "-"+name)
				case 2:
					c.ask(url, nil, "", "")
				case 3:
					c.ask(url, nil, c.nonces[url], "")
				default:
					c.next()
				}
			}
			for range 3 {
				for _, url := range []string{entries, rules} {
					c.ask(url, nil, "", "")
					c.next()
					c.ack(url)
				}
			}
			for url, m := range c.world {
				for name := range m.All() {
					r, _ := m.Get(name)
					if content := c.has[url][string(name)]; of(string(name), content).ContentHash() != r.ContentHash() {
						t.Fatalf("seed %d, %s: %s has %q", seed, v, name, content)
					}
				}
				if len(c.has[url]) != m.Len() {
					t.Fatalf("seed %d, %s: %v, want %d", seed, v, c.has[url], m.Len())
				}
			}
		}
	}
}
