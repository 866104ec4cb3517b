package admin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// TestAnswer: workloads of the control plane's namespace read everything, others pages about proxies of their namespace, and clients
// without an identity the same pages as by HTTP.
func TestAnswer(t *testing.T) {
	w := newWorld(t, shop)
	w.connect("web-1.shop")
	w.options.Namespaces = []string{"istio-system"}
	w.options.Log = quiet()
	of := func(namespace string) server.Page {
		return server.Page{Address: "192.0.2.1:4242", Caller: identity.Caller{Identity: identity.Identity{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: "a"}}}
	}
	operator, own, other := of("istio-system"), of("shop"), of("bank")
	for _, c := range []struct {
		name   string
		who    server.Page
		path   string
		code   codes.Code
		has    string
		hasNot string
	}{
		{"operator", operator, "syncz", codes.OK, `"proxy":"web-1.shop"`, ""},
		{"operator", operator, "configz", codes.OK, `"reviews"`, ""},
		{"operator", operator, "list", codes.OK, `/debug/configz`, ""},
		{"own", own, "syncz", codes.OK, `"proxy":"web-1.shop"`, ""},
		{"own", own, "syncz?namespace=shop", codes.OK, `"proxy":"web-1.shop"`, ""},
		{"own", own, "syncz?namespace=bank", codes.PermissionDenied, "namespace shop", ""},
		{"own", own, "config_dump?proxyID=web-1.shop", codes.OK, "web-1.shop", ""},
		{"own", own, "explain?proxyID=web-1.shop", codes.OK, "reviews.shop", ""},
		{"own", own, "configz", codes.PermissionDenied, "istio-system", ""},
		{"own", own, "list", codes.OK, "/debug/config_dump", "/debug/configz"},
		{"other", other, "syncz", codes.OK, "[]", "web-1"},
		{"other", other, "connections", codes.OK, `"totalClients":0`, "web-1"},
		{"other", other, "config_dump?proxyID=web-1.shop", codes.NotFound, "there are: none", ""},
		{"other", other, "adsz?proxyID=web-1", codes.OK, `"totalClients":0`, "web-1"},
		{"other", other, "instancesz?proxy=web-1.shop", codes.NotFound, "", "cluster"},
		{"unknown", server.Page{Address: "192.0.2.1:1"}, "syncz", codes.PermissionDenied, "connect over TLS", ""},
		{"here", server.Page{Address: here}, "configz", codes.OK, "reviews", ""},
		{"here", server.Page{Address: here}, "none", codes.NotFound, "/debug/list", ""},
		{"here", server.Page{Address: here}, "config_dump", codes.InvalidArgument, "proxyID", ""},
		{"here", server.Page{Address: here}, "\x01", codes.InvalidArgument, "not a page", ""},
		{"here", server.Page{Address: here}, "../metrics", codes.NotFound, "there is no page", ""},
	} {
		c.who.Path = c.path
		body, err := New(w.options).Answer(t.Context(), c.who)
		text := string(body)
		if err != nil {
			text = status.Convert(err).Message()
		}
		if status.Code(err) != c.code || !strings.Contains(text, c.has) || c.hasNot != "" && strings.Contains(text, c.hasNot) {
			t.Errorf("%s %s: %v, %s", c.name, c.path, status.Code(err), text)
		}
	}
	w.options.Remote = true
	if _, err := New(w.options).Answer(t.Context(), server.Page{Path: "configz", Address: "192.0.2.1:1"}); err != nil {
		t.Errorf("with --debugRemote: %v", err)
	}
}

// TestPagesOfOthers: no page that callers of other namespaces may read shows them a proxy of another namespace.
func TestPagesOfOthers(t *testing.T) {
	w := newWorld(t, shop)
	w.connect("web-1.shop")
	w.options.Log = quiet()
	p := New(w.options)
	var names []string
	for _, one := range p.list {
		if !one.proxies {
			continue
		}
		name := strings.TrimPrefix(one.Path, "/debug/")
		names = append(names, name)
		body, err := p.Answer(t.Context(), server.Page{Path: name + "?proxyID=web-1.shop", Address: here, Caller: identity.Caller{
			Identity: identity.Identity{TrustDomain: "cluster.local", Namespace: "bank", ServiceAccount: "a"},
		}})
		if strings.Contains(string(body), "web-1") || err == nil && !json.Valid(body) {
			t.Errorf("%s tells %s", name, body)
		}
	}
	want := []string{"syncz", "explain", "connections", "adsz", "sidecarz", "instancesz", "edsz", "config_dump"}
	if !slices.Equal(names, want) {
		t.Errorf("the pages about proxies are %v, want %v", names, want)
	}
}
