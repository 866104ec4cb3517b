package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pilotmesh/pilot/test/capture/lab"
)

// captureFlags are the usual flags for the rules of a sidecar: both directions, both IP versions, the ports of the proxy left out, and DNS.
var captureFlags = []string{
	"-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15090,15021,15020", "--redirect-dns", "--capture-all-dns",
}

// captured measures how long the capture command of pilot-agent takes in a network namespace without rules, with each of its back
// ends: from the start of the process to its end.
func captured(b *bench) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: network namespaces need root", errSkipped)
	}
	p, err := b.programs()
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	for _, backend := range []struct {
		name, variant string
		flags         []string
	}{{"nft", "-nft", nil}, {"legacy", "-legacy", nil}, {"native", "-nft", []string{"--native-nftables"}}} {
		tools, err := captureTools(filepath.Join(p.dir, backend.name), backend.variant)
		if err != nil {
			return err
		}
		var took []float64
		for range b.reps(60) {
			one, err := capture(b.ctx, p.agent.Binary, tools, backend.flags)
			if err != nil {
				return err
			}
			took = append(took, one.Seconds()*1000)
		}
		b.record("capture/"+backend.name+"-p50", quantile(took, 0.5))
		b.record("capture/"+backend.name+"-p99", quantile(took, 0.99))
	}
	return nil
}

// captureTools makes a folder with one variant of iptables under its plain name, and returns it.
func captureTools(dir, variant string) (string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	names := map[string]string{"ip": "ip", "nft": "nft"}
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, tail := range []string{"", "-save", "-restore"} {
			names[name+tail] = name + variant + tail
		}
	}
	for as, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("%w: %w; install iptables, nftables and iproute2", errSkipped, err)
		}
		if err := os.Symlink(path, filepath.Join(dir, as)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// capture runs the command in the network namespace of a workload with addresses of both versions, and returns how long it took.
func capture(ctx context.Context, agent, tools string, flags []string) (took time.Duration, err error) {
	place, err := lab.New(lab.Options{Stack: "dual", NoProxy: true})
	if err != nil {
		return 0, err
	}
	defer place.Close()
	c := exec.CommandContext(ctx, agent, append(append([]string{"istio-iptables"}, captureFlags...), flags...)...)
	c.Env = []string{"PATH=" + tools}
	var out []byte
	place.Pod.Do(-1, -1, func() {
		began := time.Now()
		out, err = c.CombinedOutput()
		took = time.Since(began)
	})
	if err != nil {
		return 0, fmt.Errorf("istio-iptables: %w\n%s", err, out)
	}
	return took, nil
}
