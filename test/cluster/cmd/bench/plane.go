package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/kit/process"
	"github.com/pilotmesh/pilot/test/testbed"
)

// plane is a pilot-discovery in a process of its own. Its addresses stay the same over restarts.
type plane struct {
	testbed.Pages
	grpc    string
	log     string
	args    []string
	binary  string
	process *process.Process
}

// newPlane builds pilot-discovery and prepares to run it for the cluster of a world.
func newPlane(ctx context.Context, w *world) (*plane, error) {
	binary, err := w.build(ctx, "pilot-discovery")
	if err != nil {
		return nil, err
	}
	return planeWith(binary, filepath.Join(w.dir, "cluster"), "--kubeconfig="+w.cluster.Kubeconfig())
}

func planeWith(binary, dir string, args ...string) (*plane, error) {
	ports, err := testbed.FreePorts(2)
	if err != nil {
		return nil, err
	}
	p := &plane{Pages: testbed.Pages{HTTP: testbed.Loopback(ports[0]), Client: testbed.NewClient()}, grpc: testbed.Loopback(ports[1]), binary: binary, log: dir + ".log"}
	p.args = append([]string{"discovery", "--grpcAddr=" + p.grpc, "--httpAddr=" + p.HTTP, "--monitoringAddr=", "--secureGRPCAddr=", "--httpsAddr=", "--ctrlz_port=0"}, args...)
	return p, nil
}

// start starts the process, waits until it is ready, and returns how long that took.
func (p *plane) start(ctx context.Context) (time.Duration, error) {
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env = append(os.Environ(), "ENABLE_LEADER_ELECTION=true", "POD_NAME=bench")
	begin := time.Now()
	var err error
	if p.process, err = process.StartLogged("pilot-discovery", p.log, cmd); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = testbed.Until(ctx, "pilot-discovery to be ready", func(ctx context.Context) error {
		if dead := p.process.Alive(); dead != nil {
			return dead
		}
		_, err := p.Get(ctx, "/ready")
		return err
	})
	return time.Since(begin), err
}

// ensure starts the process if it does not run.
func (p *plane) ensure(ctx context.Context) error {
	if p.process != nil && p.process.Running() {
		return nil
	}
	_, err := p.start(ctx)
	return err
}

func (p *plane) stop() {
	if p.process != nil {
		p.process.Kill()
	}
}

// cpu is the user and system time that the process has used.
func (p *plane) cpu() (time.Duration, error) { return process.CPUTime(p.process.PID()) }

// resident is the resident memory of the process, in MB.
func (p *plane) resident() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", p.process.PID())
}

// sent counts the resources that the process has sent, by type.
func (p *plane) sent(ctx context.Context, types ...string) (sum float64, err error) {
	for _, t := range types {
		n, err := p.Metric(ctx, "pilot_xds_sent_resources_total", `type="`+t+`"`)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
