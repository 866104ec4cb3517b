package loop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
)

// hostsOfGateway is a Gateway with n hosts that need nothing but a certificate.
func hostsOfGateway(n int) string {
	var b strings.Builder
	b.WriteString("apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: edge}\nspec:\n  selector: {gw: front}\n  servers:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {port: {number: 443, name: h%[1]d, protocol: HTTPS}, hosts: [h%[1]d.exam.com], tls: {mode: SIMPLE, credentialName: s}}\n", i)
	}
	return b.String()
}

// A gateway that connects again has certificates on demand if it had them, unless that is switched off. Only an Envoy with delta xDS can have
// certificates on demand.
func TestOnDemand(t *testing.T) {
	const by, on, off = proxy.OnDemandByCount, proxy.OnDemandOn, proxy.OnDemandOff
	for _, c := range []struct {
		choice     proxy.OnDemand
		agent      string
		variant    protocol.Variant
		has, known bool
		want       proxy.OnDemand
	}{
		{by, "envoy", protocol.Delta, false, false, by}, {by, "envoy", protocol.Delta, true, true, on}, {by, "envoy", protocol.Delta, false, true, off},
		{on, "envoy", protocol.Delta, false, false, on}, {on, "envoy", protocol.Delta, false, true, off},
		{off, "envoy", protocol.Delta, true, true, off}, {off, "envoy", protocol.Delta, false, false, off},
		{on, "envoy", protocol.StateOfTheWorld, true, true, off}, {by, "gRPC Go", protocol.Delta, true, true, off},
	} {
		if got := onDemand(c.choice, c.agent, c.variant, c.has, c.known); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A gateway has certificates on demand if it has many hosts when it connects. That stays when hosts come and go; another gateway, which connects
// later, counts them again.
func TestOnDemandStays(t *testing.T) {
	f := start(t, Settings{})
	f.apply(hostsOfGateway(proxy.OnDemandHosts + 1))
	connect := func(n int) (onDemand func() bool) {
		p := *meshtest.Node(t, fmt.Sprintf("router~10.0.0.%[1]d~gw-%[1]d.edge~edge.svc.cluster.local", n), `{"LABELS": {"gw": "front"}}`)
		p.OnDemand = proxy.OnDemandByCount
		<-f.Synced()
		c, err := f.Attach(&p, newStream())
		if err != nil {
			t.Fatal(err)
		}
		f.eventually("the class of a gateway", func(v *View) bool { _, ok := v.Queries.Class.Get(v.Graph.Glance(), c.ID()); return ok })
		return func() (on bool) {
			f.settled(func(v *View) {
				c, _ := v.Queries.Class.Get(v.Graph.Glance(), c.ID())
				on = c.OnDemand
			})
			return on
		}
	}
	first := connect(1)
	f.settled(func(*View) {})
	f.apply(hostsOfGateway(proxy.OnDemandHosts))
	second := connect(2)
	f.settled(func(*View) {})
	if !first() || second() {
		t.Errorf("with a host less: first %t, second %t", first(), second())
	}
	f.apply(hostsOfGateway(proxy.OnDemandHosts + 1))
	f.settled(func(*View) {})
	if third := connect(3); !first() || second() || !third() {
		t.Errorf("with the host again: first %t, second %t, third %t", first(), second(), third())
	}
	f.apply("", api.Key{Kind: api.KindGateway, Namespace: "edge", Name: "front"})
	f.apply(hostsOfGateway(1))
	if f.settled(func(*View) {}); !first() || second() {
		t.Errorf("with one host, after none: first %t, second %t", first(), second())
	}
}
