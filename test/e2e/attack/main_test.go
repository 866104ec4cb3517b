// Package attack tests that policies refuse requests whatever a client sends: raw bytes, frames of HTTP/2, odd certificates and forged
// tokens. Clients bypass their own sidecar and connect to a captured workload directly, also while policies change under load.
//
// The workload has a network namespace of its own, with pilot-discovery, pilot-agent, a real Envoy and an application that returns the
// request as it arrived. Attackers and authorizers are in another namespace. A row of a table is one attack with its expected verdict.
// pilotctl can-i must give the same answer as Envoy. Known failures are listed in testdata/gaps.txt with their topic.
//
// The bed belongs to TestMain. Its goroutines serve connections, and end with their listeners.
package attack

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/netns"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// patience is how long anything may take that is sure to happen. A busy machine may take its time.
const patience = time.Minute

// programs are the programs under test.
type programs struct{ agent, discovery, control, envoy string }

// shared is the bed of all tests, or why there is none.
var (
	shared  *bed
	skipped string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if skipped = missing(); skipped != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "attack-")
	if err == nil {
		defer os.RemoveAll(dir)
		var p programs
		if p, err = build(context.Background(), dir); err == nil {
			shared, err = newBed(context.Background(), dir, p)
		}
	}
	if shared != nil {
		defer shared.close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		return 1
	}
	return m.Run()
}

// missing returns the reason why this machine cannot run the tests, or "".
func missing() string {
	if os.Geteuid() != 0 {
		return "needs root (network namespaces, capture)"
	}
	for program, in := range map[string]string{"ip": "iproute2", "iptables": "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			return "needs `" + program + "` (Debian: apt-get install -y " + in + ")"
		}
	}
	n, err := netns.New()
	if err != nil {
		return "needs network namespaces: " + err.Error()
	}
	defer n.Close()
	var out []byte
	n.Do(-1, -1, func() {
		out, err = exec.Command("iptables", "-w", "5", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-m", "owner", "--uid-owner", "1", "-j", "REDIRECT").CombinedOutput()
	})
	if err != nil {
		return fmt.Sprintf("needs iptables with REDIRECT: %v: %s", err, out)
	}
	return ""
}

// build finds or builds the programs.
func build(ctx context.Context, dir string) (p programs, err error) {
	root, err := repo.Root()
	if err != nil {
		return p, err
	}
	if p.envoy, _, err = envoy.Find(ctx, root); err != nil {
		return p, err
	}
	for name, into := range map[string]*string{"pilot-agent": &p.agent, "pilot-discovery": &p.discovery, "pilotctl": &p.control} {
		if *into, err = testbed.FindOrBuild(ctx, root, name, dir); err != nil {
			return p, err
		}
	}
	return p, nil
}
