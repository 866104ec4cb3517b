package environment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/kit/process"
)

// Inputs are what a control plane is started with.
type Inputs struct {
	ConfigDir      string // folder of the case's documents
	Mesh, Networks string // files
	GRPC, HTTP     string // where to listen: plaintext ADS, and /ready
	Log            string // where its output goes
	Work           string // scratch folder
}

// Plane makes the command that starts a control plane.
type Plane func(Inputs) *exec.Cmd

// Pilot starts the pilot-discovery at path.
func Pilot(path string) Plane {
	return func(in Inputs) *exec.Cmd {
		return exec.Command(path, "discovery",
			"--configDir="+in.ConfigDir, "--meshConfig="+in.Mesh, "--networksConfig="+in.Networks, "--registries=",
			"--grpcAddr="+in.GRPC, "--httpAddr="+in.HTTP, "--stateDir="+filepath.Join(in.Work, "state"), "--secureGRPCAddr=", "--httpsAddr=", "--monitoringAddr=", "--ctrlz_port=0")
	}
}

// Script starts any other control plane by a program that finds its inputs in the environment, as FORMAT.md describes.
func Script(path string) Plane {
	return func(in Inputs) *exec.Cmd {
		cmd := exec.Command(path)
		cmd.Env = append(os.Environ(), "EXAM_CONFIG_DIR="+in.ConfigDir, "EXAM_MESH="+in.Mesh, "EXAM_NETWORKS="+in.Networks,
			"EXAM_GRPC="+in.GRPC, "EXAM_HTTP="+in.HTTP, "EXAM_LOG="+in.Log, "EXAM_WORK="+in.Work)
		return cmd
	}
}

// plane is the running control plane. One goroutine waits for its end.
type plane struct {
	process *process.Process
	log     string
	grpc    string
}

// writeInputs puts a case's configuration, mesh and networks files into dir.
func (env *environment) writeInputs(c *casefile.Case, dir string) error {
	conf := filepath.Join(dir, "config")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return err
	}
	text := strings.NewReplacer("${JWKS}", env.keys.JWKS(), "${JWKS_URI}", env.jwks).Replace(c.Config)
	networks := obj{"networks": obj{}}
	if len(c.Networks) > 0 {
		networks = c.Networks
		if _, ok := networks["networks"]; !ok {
			networks = obj{"networks": networks}
		}
	}
	mesh, err := yaml.Marshal(merge(meshDefaults(), c.Mesh))
	if err != nil {
		return err
	}
	nets, err := yaml.Marshal(networks)
	if err != nil {
		return err
	}
	for f, b := range map[string][]byte{"config/config.yaml": []byte(text), "mesh.yaml": mesh, "networks.yaml": nets} {
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// startPlane starts the control plane; slot alternates the ports so that the next case need not wait for them. It returns the plane's readiness URL.
func (env *environment) startPlane(ctx context.Context, start Plane, dir string, slot int) (*plane, string, error) {
	port := env.base + slot%2*10
	in := Inputs{
		ConfigDir: filepath.Join(dir, "config"), Mesh: filepath.Join(dir, "mesh.yaml"), Networks: filepath.Join(dir, "networks.yaml"),
		GRPC: fmt.Sprintf("127.0.0.1:%d", port), HTTP: fmt.Sprintf("127.0.0.1:%d", port+1),
		Log: filepath.Join(dir, "plane.log"), Work: filepath.Join(dir, "work"),
	}
	for _, a := range []string{in.GRPC, in.HTTP} {
		if c, err := new(net.Dialer).DialContext(ctx, "tcp", a); err == nil {
			c.Close()
			return nil, "", fmt.Errorf("%s is in use by another process: choose another -id", a)
		}
	}
	f, err := os.Create(in.Log)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if err := os.MkdirAll(in.Work, 0o755); err != nil {
		return nil, "", err
	}
	cmd := start(in)
	cmd.Dir, cmd.Stdout, cmd.Stderr = in.Work, f, f
	// A process namespace: whatever it starts ends with it, even when this runner is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWPID}
	p, err := process.Start(cmd)
	if err != nil {
		return nil, "", fmt.Errorf("control plane: %w", err)
	}
	return &plane{process: p, log: in.Log, grpc: in.GRPC}, "http://" + in.HTTP + "/ready", nil
}

// wait returns once url answers 200.
func (p *plane) wait(ctx context.Context, url string, limit time.Duration) error {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	err := poll(ctx, 10*time.Millisecond, limit, func() (bool, error) {
		if err := p.alive(); err != nil {
			return false, err
		}
		resp, err := client.Get(url)
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if errors.Is(err, errTime) {
		return fmt.Errorf("control plane: no 200 from %s in %v\n%s", url, limit, tail(p.log, 15))
	}
	return err
}

// alive fails once the control plane has ended.
func (p *plane) alive() error {
	if p.process.Running() {
		return nil
	}
	return fmt.Errorf("control plane ended: %s\n%s", p.process.State(), tail(p.log, 15))
}

// stop ends the control plane and with it its process namespace.
func (p *plane) stop() { p.process.End(syscall.SIGTERM, 300*time.Millisecond) }
