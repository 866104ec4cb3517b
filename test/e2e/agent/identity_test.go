package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestCertified is the life of a sidecar that calls the control plane over TLS: it shows a token first, then its certificate, which is
// renewed; the control plane is killed and comes back; and no log has a key or token.
func TestCertified(t *testing.T) {
	for _, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			b := newBed(t)
			b.TLSOnly()
			b.Env = []string{"MAX_WORKLOAD_CERT_TTL=10s", "DEFAULT_WORKLOAD_CERT_TTL=10s"}
			b.serve()
			o := b.certified("web")
			a := b.ready(o, node)
			b.answers()
			b.shows(a, "certificate", 2) // the first one has expired by then
			b.Discovery.Kill()
			connected := b.shown(a, "")
			b.serve()
			b.shows(a, "", connected+1) // a token, if the certificate is about to be renewed just then
			b.answers()
			if err := a.Rejected(b.Context()); err != nil {
				b.Error(err)
			}
			for _, text := range []string{b.token(o)[:40], "PRIVATE KEY"} {
				if strings.Contains(b.log(a), text) || strings.Contains(b.Log(), text) {
					b.Errorf("a log has %q", text)
				}
			}
		})
	}
}

// TestNotCertified: an agent without a token names the missing token.
func TestNotCertified(t *testing.T) {
	b := newBed(t)
	b.TLSOnly()
	b.serve()
	o := b.certified("web")
	o.Args = append(o.Args, "--tokenFile=nowhere")
	b.says(b.agent(o, testbed.Node{}), "pilotctl token create")
}

// TestOtherAccount: an agent that claims to be of another service account than its token's reports it.
func TestOtherAccount(t *testing.T) {
	b := newBed(t)
	b.TLSOnly()
	b.serve()
	o := b.certified("web")
	o.Env = append(o.Env, "SERVICE_ACCOUNT=admin")
	b.says(b.agent(o, testbed.Node{}), `service account is \"admin\"`)
}

// certified are the options of an agent that has a token of a service account in the namespace shop.
func (b *bed) certified(account string) testbed.AgentOptions {
	b.Helper()
	args, env, err := b.Certified(b.Context(), controlBinary, b.TempDir(), "shop", account)
	if err != nil {
		b.Fatal(err)
	}
	o := options(args...)
	o.Env = env
	return o
}

// token is the token of an agent.
func (b *bed) token(o testbed.AgentOptions) string {
	b.Helper()
	for _, arg := range o.Args {
		if file, ok := strings.CutPrefix(arg, "--tokenFile="); ok {
			text, err := os.ReadFile(file)
			if err != nil {
				b.Fatal(err)
			}
			return string(text)
		}
	}
	b.Fatal("the agent has no token")
	return ""
}

// log is everything that an agent has logged.
func (b *bed) log(a *testbed.Agent) string {
	b.Helper()
	text, err := a.WholeLog()
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// shown is how many times an agent has connected and shown a certificate or token; an empty text counts both.
func (b *bed) shown(a *testbed.Agent, what string) int {
	b.Helper()
	return strings.Count(b.log(a), "shows="+what)
}

// shows waits until the agent has connected some number of times, showing a certificate or token.
func (b *bed) shows(a *testbed.Agent, what string, times int) {
	b.Helper()
	b.await("the agent to show a "+what, func(context.Context) error {
		if n := b.shown(a, what); n < times {
			return fmt.Errorf("it has been shown %d times, not %d", n, times)
		}
		return nil
	})
}

// says waits until an agent logs something.
func (b *bed) says(a *testbed.Agent, what string) {
	b.Helper()
	b.await("the agent to say "+what, func(context.Context) error {
		if !strings.Contains(b.log(a), what) {
			return errors.New("it has not")
		}
		return nil
	})
}
