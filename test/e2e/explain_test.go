package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// TestExplain asks the programs as a person would, about an Envoy that has a service, does not see another, and refuses the
// routes of a third.
func TestExplain(t *testing.T) {
	reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
	secret := newService(t, "secret", backend(t, "s1"))
	ratings := newService(t, "ratings", backend(t, "r1"), backend(t, "r2"))
	hidden := strings.Replace(secret.entry(), "spec:\n", "spec:\n  exportTo: [vault]\n", 1)
	b := newBed(t,
		"services.yaml", reviews.entry()+reviews.subsets()+ratings.entry()+ratings.subsets(),
		"secret.yaml", hidden, "reviews.yaml", reviews.weights(100, 0), "ratings.yaml", ratings.weights(100, 0))
	e := b.suspiciousEnvoy(testbed.Node{Name: "client", Namespace: "shop", MaxRegex: 100})
	b.answers(reviews, "v1", "/")
	b.answers(ratings, "r1", "/")
	ctl := b.tool()

	ctl.says(0, "explain", "client.shop", "host", "reviews").has(
		"host reviews.shop.svc.cluster.local for client.shop: served", fmt.Sprintf("127.0.0.1_%d", reviews.port), "endpoints  2",
		"ServiceEntry shop/reviews", "services.yaml:2", "VirtualService shop/reviews", "reviews.yaml:2")
	ctl.says(0, "explain", "client", "cluster", fmt.Sprintf("outbound|%d|v2|%s", reviews.port, reviews.host())).has(
		"DestinationRule shop/reviews", "same for  all proxies")
	ctl.says(1, "explain", "client", "host", "secret").has(
		"absent", "secret.yaml:2: ServiceEntry shop/secret", "exported to namespace vault only", `fix: add "shop"`)
	ctl.says(1, "explain", "client", "cluster", fmt.Sprintf("outbound|%d|v9|%s", reviews.port, reviews.host())).has(`no subset "v9"`)
	ctl.says(1, "explain", "nobody", "host", "reviews").has(`no connected proxy is called "nobody"; there are: client.shop`)
	ctl.says(2, "explain", "client", "host").has("say what to explain")
	ctl.says(0, "__complete", "explain", "").has("client.shop")
	ctl.says(0, "__complete", "explain", "client.shop", "host", "").has(reviews.host())

	b.write("ratings.yaml", ratings.routes(fmt.Sprintf(`
  - match: [{uri: {regex: "/[a-z]{200}"}}]
    route: [{destination: {host: %[1]s, subset: v1}}]
  - route: [{destination: {host: %[1]s, subset: v2}}]
`, ratings.host())))
	b.rejection(e)
	b.await("what is held back to be told", func(context.Context) error {
		if out, code := ctl.run("explain", "client", "route", fmt.Sprintf("%s:%d", ratings.host(), ratings.port)); code != 1 ||
			!strings.Contains(out, "held back") || !strings.Contains(out, "ratings.yaml:2: VirtualService shop/ratings") {
			return errors.New(out)
		}
		return nil
	})
	ctl.says(0, "proxy-status", "client").has("1 held back", "holds back since", "VirtualService shop/ratings")
	ctl.says(0, "proxy-status", "client", "-o", "yaml").has("held:", "since:")
	ctl.says(0, "problems", "-o", "json").has("ratings.yaml", "rejected")
	ctl.says(0, "explain", "client", "host", "reviews").has("served")
}

// tool is pilotctl, asking a bed's control plane.
type tool struct {
	*bed
	binary string
}

func (b *bed) tool() *tool {
	b.Helper()
	root, err := repo.Root()
	if err != nil {
		b.Fatal(err)
	}
	binary, err := testbed.Build(b.Context(), root, "pilotctl", b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	return &tool{b, binary}
}

// run runs the tool and returns all it writes and its exit code.
func (p *tool) run(args ...string) (string, int) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), p.binary, append(args, "--address="+p.HTTP)...)
	if args[0] == "__complete" { // the typed word comes last
		last := len(args) - 1
		cmd.Args = append(append([]string{p.binary}, args[:last]...), "--address="+p.HTTP, args[last])
	}
	out, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		p.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// says runs the tool, which has to end with the code.
func (p *tool) says(code int, args ...string) said {
	p.Helper()
	out, got := p.run(args...)
	if got != code {
		p.Errorf("pilotctl %q ended with %d, want %d:\n%s", args, got, code, out)
	}
	return said{p.bed, args, out}
}

type said struct {
	*bed
	args []string
	text string
}

// has fails the test if one of the texts was not written.
func (s said) has(texts ...string) {
	s.Helper()
	for _, text := range texts {
		if !strings.Contains(s.text, text) {
			s.Errorf("pilotctl %q does not say %q:\n%s", s.args, text, s.text)
		}
	}
}
