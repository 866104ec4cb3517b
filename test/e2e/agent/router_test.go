package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestRouter: the Envoy of a gateway gets ready, although the control plane has no listener for it yet.
func TestRouter(t *testing.T) {
	b := newBed(t)
	b.serve()
	o := options()
	o.Role = "router"
	a := b.ready(o, testbed.Node{})
	if page, err := a.Admin(t.Context(), "/server_info"); err != nil || !strings.Contains(page, `"id": "router~127.1.0.1~app.shop~`) {
		t.Errorf("%v\n%s", err, page)
	}
	if err := a.Rejected(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTemplate: Envoy runs with a bootstrap that follows from the user's template. A change of the template leads to a hot restart, and with a wrong
// one the present Envoy keeps running.
func TestTemplate(t *testing.T) {
	b := newBed(t)
	b.serve()
	const whole = "{{ $b := .bootstrap }}admin: {{ toJSON $b.admin }}\nnode: {{ toJSON $b.node }}\nlayered_runtime: {{ toJSON $b.layered_runtime }}\n" +
		"dynamic_resources: {{ toJSON $b.dynamic_resources }}\nbootstrap_extensions: {{ toJSON $b.bootstrap_extensions }}\nstatic_resources:\n" +
		"  listeners: {{ toJSON $b.static_resources.listeners }}\n  clusters:\n{{ range $b.static_resources.clusters }}  - {{ toJSON . }}\n{{ end }}  - name: %s\n"
	file := write(t, "bootstrap.tmpl", fmt.Sprintf(whole, "first"))
	o := options()
	o.Env = []string{"ISTIO_BOOTSTRAP=" + file}
	a := b.restarts(o, testbed.Node{})
	a.admin("/clusters", "first::")
	b.answers()
	for _, c := range []struct {
		text, says string
		epoch      int
	}{
		{fmt.Sprintf(whole, "{{ .nothing }}"), "uses a value that does not exist", 0},
		{fmt.Sprintf(whole, "{{ .nodeID"), "unclosed action", 0},
		{fmt.Sprintf(whole, "second"), "", 1},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.says != "" {
			a.says(c.says, 1)
			continue
		}
		a.complete(c.epoch)
	}
	a.admin("/clusters", "second::")
	b.answers()
}
