package kubesource

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// addressOf returns the first allocated address of a ServiceEntry of the test; empty if there is none.
func (p *place) addressOf(name string) string {
	p.Helper()
	return p.output("get", "serviceentry/"+name, "-o", "jsonpath={.status.addresses[0].value}")
}

// addressesOf returns all allocated addresses of a ServiceEntry, with their hosts.
func (p *place) addressesOf(name string) string {
	p.Helper()
	return p.output("get", "serviceentry/"+name, "-o", `jsonpath={range .status.addresses[*]}{.host} {.value}{"\n"}{end}`)
}

// external is a ServiceEntry without addresses, with more lines of its specification.
func external(name, more string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s}
spec:
  hosts: [%[1]s.test]
  resolution: DNS
  ports: [{number: 5432, name: tcp, protocol: TCP}]
  %[2]s
---`, name, more)
}

// TestAllocation: only the leader gives each host addresses; they stay when another replica becomes the leader and when
// the objects change, or a younger object names one.
func TestAllocation(t *testing.T) {
	p := on(t)
	p.definitions()
	one, two := p.replica(), p.replica()
	p.apply(external("first", "") + external("second", ""))
	two.knows("first")
	stop := one.lead("one")
	p.until("the first leads", p.holder("one"))
	p.kubectl("", "wait", "--for=jsonpath={.status.addresses[1].value}", "serviceentry/first", "--timeout", patience.String())
	p.kubectl("", "wait", "--for=jsonpath={.status.addresses[1].value}", "serviceentry/second", "--timeout", patience.String())
	was := p.addressesOf("first")
	if lines := strings.Split(strings.TrimSpace(was), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "first.test 240.240.") || !strings.HasPrefix(lines[1], "first.test 2001:2:") {
		t.Errorf("the addresses are\n%s", was)
	}
	p.condition("serviceentry/first", "Accepted") // its conditions and its addresses are written side by side
	stop()
	two.lead("two")
	p.until("the second leads", p.holder("two"))

	p.apply(external("first", "location: MESH_EXTERNAL") + external("third", ""))
	p.kubectl("", "wait", "--for=jsonpath={.status.addresses[1].value}", "serviceentry/third", "--timeout", patience.String())
	if is := p.addressesOf("first"); is != was {
		t.Errorf("the addresses were\n%s and are\n%s", was, is)
	}

	taken := p.addressOf("first")
	p.apply(external("naming", "addresses: ["+taken+"]"))
	p.condition("serviceentry/naming", "Accepted") // it has been looked at
	if is := p.addressOf("first"); is != taken {
		t.Errorf("an object that is younger takes the address: it was %s and is %s", taken, is)
	}
}

// TestAllocationOfFormerWriter: addresses allocated before the control plane starts stay, and of two objects with one address the
// younger gets another.
func TestAllocationOfFormerWriter(t *testing.T) {
	p := on(t)
	p.definitions()
	for _, name := range []string{"alpha", "beta", "gamma"} { // of equal age, as the API server counts in seconds, or in this order
		p.apply(external(name, ""))
	}
	for name, ip := range map[string]string{"alpha": "240.240.7.7", "beta": "240.240.7.7", "gamma": "240.240.7.9"} {
		p.kubectl("", "patch", "serviceentry/"+name, "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status":{"addresses":[{"value":%q,"host":"%s.test"}]}}`, ip, name))
	}
	r := p.replica()
	r.background(func(ctx context.Context) { r.addresses.Run(ctx) })
	for _, name := range []string{"alpha", "beta", "gamma"} {
		p.kubectl("", "wait", "--for=jsonpath={.status.addresses[1].value}", "serviceentry/"+name, "--timeout", patience.String())
	}
	p.until("the younger has another address", func() bool { return p.addressOf("beta") != "240.240.7.7" })
	if a, g := p.addressOf("alpha"), p.addressOf("gamma"); a != "240.240.7.7" || g != "240.240.7.9" {
		t.Errorf("addresses that were nobody else's became %s and %s", a, g)
	}
}
