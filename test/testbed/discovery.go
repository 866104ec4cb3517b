package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/kit/process"
)

// FindOrBuild returns the path of a program of the repository at root: the one that is built already and that a variable of the environment names, such as
// PILOT_AGENT, or else a new one; see Build.
func FindOrBuild(ctx context.Context, root, program, dir string, flags ...string) (string, error) {
	if path := os.Getenv(strings.ReplaceAll(strings.ToUpper(program), "-", "_")); path != "" {
		return path, nil
	}
	return Build(ctx, root, program, dir, flags...)
}

// Discovery is a control plane that reads its configuration from a directory. Its ports stay the same over restarts.
type Discovery struct {
	Pages
	Binary    string
	ConfigDir string   // the configuration served
	GRPC      string   // xDS, plaintext; empty for none
	Secure    string   // xDS and certificates over TLS; empty for none
	StateDir  string   // where the roots and keys are
	Env       []string // NAME=value
	Args      []string // behind all others
	// Enter leads to where the control plane runs, for instance into a network namespace; nil for here.
	Enter   func() error
	logs    string
	process *process.Process
}

// NewDiscovery prepares a control plane; Start runs it. Its files go below dir.
func NewDiscovery(binary, dir string) (*Discovery, error) {
	ports, err := FreePorts(2)
	if err != nil {
		return nil, err
	}
	d := &Discovery{Binary: binary, ConfigDir: filepath.Join(dir, "config"), StateDir: filepath.Join(dir, "state"), GRPC: Loopback(ports[0]), Pages: Pages{HTTP: Loopback(ports[1])}, logs: dir}
	return d, os.MkdirAll(d.ConfigDir, 0o755)
}

// TLSOnly makes the control plane serve xDS and certificates over TLS, and nothing in plaintext.
func (d *Discovery) TLSOnly() {
	d.GRPC, d.Secure = "", d.GRPC
}

// Certified returns what lets an agent call the control plane over TLS as a service account, for which it issues a token. control is the
// path of pilotctl. The agent's files go below dir.
func (d *Discovery) Certified(ctx context.Context, control, dir, namespace, account string) (args, env []string, err error) {
	cmd := exec.CommandContext(ctx, control, "token", "create", "--new", "--stateDir="+d.StateDir, "--service-account="+namespace+"/"+account)
	token, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("pilotctl token create: %w", err)
	}
	file := filepath.Join(dir, namespace+"-"+account+".token")
	if err := os.WriteFile(file, token, 0o600); err != nil {
		return nil, nil, err
	}
	return []string{"--controlPlaneAuthPolicy=MUTUAL_TLS", "--tokenFile=" + file},
		[]string{"XDS_ROOT_CA=" + filepath.Join(d.StateDir, "root-cert.pem"), "SERVICE_ACCOUNT=" + account}, nil
}

// Start runs the control plane and waits until it is ready. It can be called again after Stop or Kill.
func (d *Discovery) Start(ctx context.Context) error {
	p, err := start(d.Enter, "pilot-discovery", d.logs, "/usr/bin/env", slices.Concat(d.Env, []string{d.Binary, "discovery",
		"--configDir=" + d.ConfigDir, "--registries=", "--grpcAddr=" + d.GRPC, "--httpAddr=" + d.HTTP,
		"--secureGRPCAddr=" + d.Secure, "--stateDir=" + d.StateDir, "--httpsAddr=", "--monitoringAddr=", "--ctrlz_port=0"}, d.Args)...)
	if err != nil {
		return err
	}
	d.process = p
	return ready(ctx, p, "pilot-discovery to be ready", func(ctx context.Context) error {
		_, err := d.Get(ctx, "/ready")
		return err
	})
}

// Stop ends the control plane in order.
func (d *Discovery) Stop() {
	if d.process != nil {
		stop(d.process)
	}
}

// Kill ends the control plane as a crash would.
func (d *Discovery) Kill() { d.process.Kill() }

// Alive returns an error with the end of the log if the control plane has ended.
func (d *Discovery) Alive() error { return d.process.Alive() }

// Log is the end of what the control plane wrote.
func (d *Discovery) Log() string { return d.process.Tail() }

// Accident returns an error if the control plane, in any of its runs, panicked or met a data race.
func (d *Discovery) Accident() error {
	log, err := os.ReadFile(d.process.Log())
	if err != nil {
		return err
	}
	if at := regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: )|level=ERROR`).FindIndex(log); at != nil {
		return fmt.Errorf("the log of pilot-discovery says:\n%.4000s", log[at[0]:])
	}
	return nil
}

// WholeLog is everything that the control plane wrote since it was started.
func (d *Discovery) WholeLog() (string, error) {
	log, err := os.ReadFile(d.process.Log())
	return string(log), err
}

// Write puts a file into the configuration directory, whole at once, and returns when that happened.
func (d *Discovery) Write(name, text string) (time.Time, error) {
	path := filepath.Join(d.ConfigDir, name)
	// A name the file source does not read, in the same directory: the rename is what counts.
	tmp := filepath.Join(d.ConfigDir, "."+name+".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return time.Time{}, fmt.Errorf("writing %s: %w", name, err)
	}
	at := time.Now()
	return at, os.Rename(tmp, path)
}

// Remove deletes a file from the configuration directory.
func (d *Discovery) Remove(name string) error { return os.Remove(filepath.Join(d.ConfigDir, name)) }

// PID is the number of the running process.
func (d *Discovery) PID() int { return d.process.PID() }
