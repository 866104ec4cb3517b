package environment

import (
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pilotmesh/pilot/test/exam/backend"
	"github.com/pilotmesh/pilot/test/exam/client"
	"github.com/pilotmesh/pilot/test/kit/process"
)

// The binary runs itself once inside each namespace; that child owns the echo servers and the driver of the namespace (and Envoy, in `wl`) and
// takes orders as JSON-RPC on stdin/stdout. It ends, with everything it started, when stdin closes.

// ChildSetup is the first order.
type ChildSetup struct {
	PKI      *backend.Keys
	DNS      string // address to serve DNS at, or none
	PublicCA string // replaces the system's CA bundle in this namespace
}

// Child is the RPC receiver.
type Child struct {
	echo  *backend.Servers
	envoy *process.Process // the one that was started last, nil if it was stopped

	listening bool
	except    []int // ports without an echo
}

type stdio struct {
	io.Reader
	io.WriteCloser
}

// ChildMain is the program that runs inside a namespace; it returns when its stdin closes.
func ChildMain() error {
	c := &Child{}
	s := rpc.NewServer()
	if err := s.Register(c); err != nil {
		return err
	}
	out := os.Stdout
	os.Stdout = os.Stderr
	s.ServeCodec(jsonrpc.NewServerCodec(stdio{os.Stdin, out}))
	return c.StopEnvoy(0, nil)
}

var sysctls = map[string]string{
	"net/ipv4/ip_unprivileged_port_start": "0",
	"net/ipv4/conf/all/rp_filter":         "0",
	"net/ipv4/conf/default/rp_filter":     "0",
	"net/ipv4/conf/eth0/rp_filter":        "0",
	"net/ipv4/tcp_fin_timeout":            "5",
	"net/ipv4/tcp_tw_reuse":               "1",
	"net/ipv4/ip_local_port_range":        "40000 60999",
	"net/ipv6/conf/all/accept_dad":        "0",
}

// Setup prepares the namespace and opens the echo servers.
func (c *Child) Setup(s *ChildSetup, _ *int) error {
	for k, v := range sysctls {
		if err := os.WriteFile("/proc/sys/"+k, []byte(v), 0o644); err != nil {
			return err
		}
	}
	if s.PublicCA != "" {
		// `ip netns exec` gave this process a mount namespace of its own
		const bundle = "/etc/ssl/certs/ca-certificates.crt"
		if _, err := os.Stat(bundle); err == nil {
			if err := syscall.Mount(s.PublicCA, bundle, "", syscall.MS_BIND, ""); err != nil {
				return fmt.Errorf("mount %s: %w", bundle, err)
			}
		}
	}
	if s.DNS != "" {
		if err := backend.ServeDNS(s.DNS); err != nil {
			return err
		}
	}
	c.echo = backend.New(s.PKI)
	return nil
}

// Listen opens the echo servers, but not on the given ports.
func (c *Child) Listen(except []int, _ *int) error {
	slices.Sort(except)
	if c.listening && slices.Equal(except, c.except) {
		return nil
	}
	if err := c.echo.Close(); err != nil {
		return err
	}
	c.except, c.listening = except, true
	return c.echo.Listen(except)
}

// Forget makes the echo servers forget what arrived in cases before.
func (c *Child) Forget(_ int, _ *int) error {
	c.echo.Forget()
	return nil
}

// Perform sends a request entry.
func (c *Child) Perform(j *client.Job, out *[]client.Outcome) error {
	*out = client.Perform(j)
	return nil
}

// Hits returns the requests that reached this namespace's echo servers, by exam-id.
func (c *Child) Hits(ids []string, out *map[string][]string) error {
	*out = map[string][]string{}
	for _, id := range ids {
		if h := c.echo.Take(id); len(h) > 0 {
			(*out)[id] = h
		}
	}
	return nil
}

// Capture loads the redirection rules ("" for none).
func (c *Child) Capture(rules map[string]string, _ *int) error {
	for tool, text := range rules {
		cmd := exec.Command(tool, "-w", "5")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", tool, err, out)
		}
	}
	return nil
}

// EnvoyStart is how to run Envoy.
type EnvoyStart struct {
	Path string
	Args []string
	Log  string
	Dir  string
	UID  uint32
}

// StartEnvoy runs Envoy as the proxy's user.
func (c *Child) StartEnvoy(s *EnvoyStart, _ *int) error {
	if err := c.StopEnvoy(0, nil); err != nil {
		return err
	}
	f, err := os.OpenFile(s.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	// Opened here and run by its descriptor: the proxy's user may not be let into the folder the binary lies in.
	binary, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer binary.Close()
	cmd := exec.Command("/proc/self/fd/3", s.Args...)
	cmd.Args[0], cmd.ExtraFiles = "envoy", []*os.File{binary}
	cmd.Stdout, cmd.Stderr, cmd.Dir = f, f, s.Dir
	cmd.Env = []string{"HOME=" + s.Dir, "PATH=" + filepath.Dir(s.Path)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.UID, Gid: s.UID}}
	c.envoy, err = process.Start(cmd)
	return err
}

// EnvoyExit returns how Envoy ended, or "" while it runs.
func (c *Child) EnvoyExit(_ int, out *string) error {
	if c.envoy == nil {
		*out = "not started"
		return nil
	}
	if !c.envoy.Running() {
		*out = c.envoy.State().String()
	}
	return nil
}

// StopEnvoy kills Envoy.
func (c *Child) StopEnvoy(_ int, _ *int) error {
	if c.envoy == nil {
		return nil
	}
	c.envoy.Kill()
	c.envoy = nil
	return nil
}
