package service_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// TestLastAccounts checks which identities clients expect of a service while its endpoints change. Each case applies its steps one after the
// other to the Service a, whose pod one-1 of the account one is in its slice.
func TestLastAccounts(t *testing.T) {
	pod := func(account string) *kube.Pod {
		return &kube.Pod{Address: "10.10.0.1", Labels: mesh.LabelsOf(map[string]string{"app": "a", "security.istio.io/tlsMode": "istio"}), ServiceAccount: account}
	}
	slice := func(pods ...string) *kube.Slice {
		s := &kube.Slice{Service: "a", Controlled: true}
		for _, p := range pods {
			s.Endpoints = append(s.Endpoints, kube.SliceEndpoint{Address: "10.10.0.1", Pod: p})
		}
		return s
	}
	a, headless := selecting(kube.ServicePort{Number: 80}), selecting(kube.ServicePort{Number: 80})
	headless.Type = kube.Headless
	s, p, q, x := in("west", kube.KindService, "a"), in("west", kube.KindPod, "one-1"), in("west", kube.KindPod, "two-1"), in("west", kube.KindEndpointSlice, "x")
	for _, c := range []struct {
		name  string
		steps []values
		want  string
	}{
		{"the slice goes", []values{{x: nil}}, "one"},
		{"the slice is empty", []values{{x: slice()}}, "one"},
		{"the pod goes, then its endpoint", []values{{p: nil}, {x: slice()}}, "one"},
		{"endpoints of another account follow", []values{{p: nil, x: slice()}, {q: pod("two"), x: slice("two-1")}}, "two"},
		{"they go, too", []values{{p: nil, x: slice()}, {q: pod("two"), x: slice("two-1")}, {q: nil, x: slice()}}, "two"},
		{"one account of two goes", []values{{q: pod("two"), x: slice("one-1", "two-1")}, {x: slice("two-1")}}, "two"},
		{"endpoints without an account follow", []values{{p: nil, x: slice()}, {q: pod(""), x: slice("two-1")}}, ""},
		{"the Service goes and comes again", []values{{s: nil, p: nil, x: nil}, {s: a}}, ""},
		{"a headless Service", []values{{s: headless}, {x: nil}}, ""},
		{"a Service that becomes headless", []values{{x: nil}, {s: headless}}, ""},
		{"another Service", []values{{x: nil}, {in("west", kube.KindService, "a"): nil, in("east", kube.KindService, "a"): a}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := meshtest.New(t)
			known, before := omap.Map[omap.Name, state.Accounts]{}, ""
			for _, step := range append([]values{{s: a, p: pod("one"), x: slice("one-1")}}, c.steps...) {
				w.Observe(step)
				before = accounts(w)
				old := known
				known = w.Queries.Services.Accounts.Get(w.Graph.Naive(), struct{}{})
				if write := w.Tables.RememberAccounts(old, known); write != nil {
					w.Commit(write)
				}
			}
			if got := accounts(w); got != c.want || before != c.want {
				t.Errorf("%q are expected, and %q before the rows are written, want %q", got, before, c.want)
			}
		})
	}
}

// accounts are the accounts of the identities that clients expect of the service a.
func accounts(w *meshtest.World) string {
	r := w.Graph.Naive()
	s, ok := w.Queries.Services.Service.Get(r, service.HostView{Host: "a.shop.svc.cluster.local"})
	if !ok {
		return "no service"
	}
	var list []string
	for _, name := range w.Queries.Services.SubjectAltNames(r, s) {
		list = append(list, strings.TrimPrefix(name, "spiffe://cluster.local/ns/shop/sa/"))
	}
	return strings.Join(list, " ")
}
