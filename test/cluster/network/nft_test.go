package network

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/knftables"
)

var testOptions = Options{
	Table: "pilot-99", Devices: "pk99",
	Nodes:   []netip.Addr{netip.MustParseAddr("10.64.0.1"), netip.MustParseAddr("fd70::1")},
	Virtual: []netip.Prefix{netip.MustParsePrefix("10.64.128.0/18"), netip.MustParsePrefix("10.64.192.0/20"), netip.MustParsePrefix("fd70:0:0:8000::/112")},
}

// service makes a service with one TCP port per number.
func service(name string, clusterIPs string, ports ...int32) *core.Service {
	s := &core.Service{ObjectMeta: meta.ObjectMeta{Namespace: "default", Name: name}, Spec: core.ServiceSpec{ClusterIPs: strings.Fields(clusterIPs)}}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, core.ServicePort{Name: "http", Port: p, Protocol: core.ProtocolTCP})
	}
	return s
}

// slice makes the endpoints of a service; an address followed by a word is in that condition.
func slice(s *core.Service, port int32, addresses ...string) *discovery.EndpointSlice {
	name, tcp := "http", core.ProtocolTCP
	e := &discovery.EndpointSlice{ObjectMeta: meta.ObjectMeta{Namespace: s.Namespace, Name: s.Name + "-" + addresses[0], Labels: map[string]string{discovery.LabelServiceName: s.Name}}}
	e.Ports = []discovery.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}}
	yes, no := true, false
	for _, a := range addresses {
		address, condition, _ := strings.Cut(a, " ")
		endpoint := discovery.Endpoint{Addresses: []string{address}}
		switch condition {
		case "unready":
			endpoint.Conditions = discovery.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
		case "terminating":
			endpoint.Conditions = discovery.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		}
		e.Endpoints = append(e.Endpoints, endpoint)
	}
	return e
}

// changeOfRules is one state of the rules, which replaces the one before it.
type changeOfRules struct {
	name         string
	build        func(*ruleset)
	want, absent []string
}

func changesOfRules() []changeOfRules {
	a, b := service("a", "10.64.128.1 fd70:0:0:8000::1", 80), service("b", "10.64.128.2", 80, 81)
	b.Spec.Ports[0].NodePort = 30080
	return []changeOfRules{
		{"one endpoint each family", func(r *ruleset) {
			r.add(a, []*discovery.EndpointSlice{slice(a, 8080, "10.64.0.5"), slice(a, 8080, "fd70::5")})
		}, []string{"10.64.128.1 . tcp . 80 : goto s/default/a/tcp/80/ip", "dnat ip to 10.64.0.5:8080", "dnat ip6 to [fd70::5]:8080"}, nil},
		{"more endpoints, node port", func(r *ruleset) {
			r.add(a, []*discovery.EndpointSlice{slice(a, 8080, "10.64.0.5", "10.64.0.6", "10.64.0.7 unready")})
			r.add(b, []*discovery.EndpointSlice{slice(b, 8080, "10.64.0.8", "10.64.0.9")})
		}, []string{"numgen random mod 2 map { 0 : 10.64.0.5 . 8080, 1 : 10.64.0.6 . 8080 }", "tcp . 30080 : goto s/default/b/tcp/80/ip", "10.64.0.8 . 10.64.0.8"}, []string{"fd70::5", "10.64.0.7"}},
		{"only terminating ones are left", func(r *ruleset) {
			r.add(a, []*discovery.EndpointSlice{slice(a, 8080, "10.64.0.5 terminating", "10.64.0.7 unready")})
		}, []string{"dnat ip to 10.64.0.5:8080"}, []string{"numgen", "30080", "10.64.0.8", "/b/"}},
		{"nothing", func(*ruleset) {}, []string{"goto refuse"}, []string{"s/default"}},
	}
}

// TestKernelAcceptsEveryChange walks through states of a cluster in a network namespace of its own, and lets the real nft list the rules at the end
// of each step.
func TestKernelAcceptsEveryChange(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to make a network namespace")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nftables is not installed")
	}
	steps := changesOfRules()
	// All in one namespace: one shell reads scripts and prints lists, step by step.
	var script strings.Builder
	tables := knftables.NewFake(knftables.InetFamily, testOptions.Table) // It only writes transactions as scripts.
	old := newRuleset()
	for i, s := range steps {
		tx, next := tables.NewTransaction(), newRuleset()
		s.build(next)
		if i == 0 {
			testOptions.declare(tx)
		}
		replaceRules(tx, old, next)
		script.WriteString("nft -f - <<'END' || exit 1\n" + tx.String() + "END\nnft list table inet pilot-99\necho ======\n")
		old = next
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script.String(), out)
	}
	lists := strings.Split(string(out), "======\n")
	for i, s := range steps {
		flat := strings.Join(strings.Fields(lists[i]), " ")
		for _, w := range s.want {
			if !strings.Contains(flat, w) {
				t.Errorf("%s: the table lacks %q:\n%s", s.name, w, lists[i])
			}
		}
		for _, w := range s.absent {
			if strings.Contains(flat, w) {
				t.Errorf("%s: the table has %q:\n%s", s.name, w, lists[i])
			}
		}
	}
}

// TestUnchangedIsNoTransaction: an event that changes nothing must not cost a run of nft.
func TestUnchangedIsNoTransaction(t *testing.T) {
	a := service("a", "10.64.128.1", 80)
	build := func() *ruleset {
		r := newRuleset()
		r.add(a, []*discovery.EndpointSlice{slice(a, 8080, "10.64.0.5", "10.64.0.6")})
		return r
	}
	tx := knftables.NewFake(knftables.InetFamily, "x").NewTransaction()
	if replaceRules(tx, build(), build()); tx.NumOperations() > 0 {
		t.Errorf("equal states differ by:\n%s", tx)
	}
}
