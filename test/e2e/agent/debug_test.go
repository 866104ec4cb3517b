package agent

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestDebugPages: through its agent a workload reads the control plane's pages about proxies of its own namespace, with curl's means, with
// pilot-agent request and with pilotctl; and one in a namespace of operators reads all.
func TestDebugPages(t *testing.T) {
	b := newBed(t)
	b.TLSOnly()
	b.Env = []string{"DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES=ops"}
	b.serve()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(ports[0])
	o := b.certified("web")
	o.Env = append(o.Env, "PROXY_XDS_DEBUG_VIA_AGENT=true", "PROXY_XDS_DEBUG_VIA_AGENT_PORT="+port)
	a := b.ready(o, testbed.Node{})
	b.ready(b.certified("other"), testbed.Node{Name: "other"})

	run := func(program string, args ...string) string {
		out, _ := exec.CommandContext(t.Context(), program, args...).CombinedOutput() // the output shows whether it failed
		return string(out)
	}
	request := func(page string) string {
		return run(agentBinary, "request", "--debug-port="+port, "GET", page)
	}
	for page, want := range map[string]string{
		"/debug/syncz":                          `"proxy":"app.shop"`,
		"/debug/config_dump?proxyID=other.shop": `"proxy":"other.shop"`,
		"/debug/configz":                        "this one is in shop",
		"/debug/list":                           "/debug/syncz",
		"/debug/syncz?namespace=ops":            "not of those in ops",
		"/debug/none":                           "404",
	} {
		if got := request(page); !strings.Contains(got, want) {
			t.Errorf("%s: %s", page, got)
		}
	}
	if got := run(controlBinary, "proxy-status", "--address=http://127.0.0.1:"+port); !strings.Contains(got, "app.shop") || !strings.Contains(got, "SYNCED") {
		t.Errorf("pilotctl: %s", got)
	}
	// Another agent on the host has no such port, and runs.
	second := b.ready(o, testbed.Node{Name: "second"})
	b.says(second, "PROXY_XDS_DEBUG_VIA_AGENT_PORT")

	b.Discovery.Kill()
	b.await("the control plane to be missed", func(context.Context) error {
		if got := request("/debug/syncz"); !strings.Contains(got, "503 Service Unavailable") {
			return fmt.Errorf("it answers %s", got)
		}
		return nil
	})
	b.answers()
	b.serve()
	b.await("the control plane to be back", func(context.Context) error {
		if got := request("/debug/syncz"); !strings.Contains(got, "app.shop") {
			return fmt.Errorf("it answers %s", got)
		}
		return nil
	})
	if err := a.Rejected(t.Context()); err != nil {
		t.Error(err)
	}
}
