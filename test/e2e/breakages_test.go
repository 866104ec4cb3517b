package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// breakage is a mistake in a running mesh.
type breakage struct {
	name string
	// file is the document with the mistake.
	file string
	// command is the first that a user would run, cause a text that its output must have, and code its exit code.
	command []string
	cause   string
	code    int
}

// TestBreakages: the first command that a user would run shows the cause of a mistake that only a running control plane can see, and
// no longer when the mistake is corrected. Mistakes that files show have a test in cmd/pilotctl.
func TestBreakages(t *testing.T) {
	reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
	b := newBed(t, "services.yaml", reviews.entry()+reviews.subsets(), "routes.yaml", reviews.weights(100, 0))
	b.envoy(testbed.Node{Name: "client", Namespace: "shop"})
	b.answers(reviews, "v1", "/")
	ctl := b.tool()
	for _, one := range breakages(reviews) {
		t.Run(one.name, func(t *testing.T) {
			shows := func(code int, is bool) func(context.Context) error {
				return func(context.Context) error {
					out, got := ctl.run(one.command...)
					if strings.Contains(out, one.cause) != is || is && got != code {
						return fmt.Errorf("pilotctl %q ends with %d:\n%s", one.command, got, out)
					}
					return nil
				}
			}
			b.await("no cause before the mistake", shows(0, false))
			b.write("zz-mistake.yaml", one.file)
			b.await("the cause "+one.cause, shows(one.code, true))
			b.remove("zz-mistake.yaml")
			b.await("no cause after the mistake", shows(0, false))
		})
	}
	b.answers(reviews, "v1", "/")
}

func breakages(reviews service) []breakage {
	object := func(kind, name, spec string) string {
		group := "networking"
		if strings.HasSuffix(kind, "Authentication") || strings.HasSuffix(kind, "Policy") {
			group = "security"
		}
		return fmt.Sprintf("apiVersion: %s.istio.io/v1\nkind: %s\nmetadata: {name: %s, namespace: shop}\nspec: %s\n", group, kind, name, spec)
	}
	host := reviews.host()
	return []breakage{
		{"keys that cannot be fetched", object("RequestAuthentication", "tokens", `{jwtRules: [{issuer: me, jwksUri: "https://127.0.0.1:1/keys"}]}`),
			[]string{"problems"}, "RequestAuthentication shop/tokens", 0},
		{"a Secret that does not exist", object("DestinationRule", "secure", "{host: "+host+", workloadSelector: {matchLabels: {app: client}}, trafficPolicy: {tls: {mode: MUTUAL, credentialName: nobodys}}}"),
			[]string{"problems"}, "DestinationRule shop/secure: SDS", 0},
		{"a rule that another one shadows", object("VirtualService", "shadow", "{hosts: ["+host+"], http: [{route: [{destination: {host: "+host+", subset: v2}}]}]}"),
			[]string{"wait", "vs/shadow", "-n", "shop", "--timeout=2s"}, "VirtualService shop/reviews goes first", 3},
		{"a rule for a host that nobody calls", object("DestinationRule", "lost", "{host: nobody.example}"),
			[]string{"wait", "dr/lost", "-n", "shop", "--timeout=2s"}, "no connected proxy needs it", 3},
		{"endpoints of a subset without a proxy", object("VirtualService", "a-first", fmt.Sprintf("{hosts: [%[1]s], http: [{route: [{destination: {host: %[1]s, subset: v2}}]}]}", host)),
			[]string{"explain", "client", "host", fmt.Sprintf("%s:%d", host, reviews.port)}, "VirtualService shop/a-first", 0},
		{"a Sidecar that hides the host", object("Sidecar", "narrow", "{egress: [{hosts: [./other.shop.svc.cluster.local]}]}"),
			[]string{"explain", "client", "host", "reviews"}, "Sidecar shop/narrow: the Sidecar lets only the hosts of its egress in", 1},
		{"a policy that lets nobody in", object("AuthorizationPolicy", "nobody", "{}"),
			[]string{"can-i", "--from", "shop/client", "--to", fmt.Sprintf("%s:%d", host, reviews.port)}, "no policy with the action ALLOW matches", 1},
	}
}
