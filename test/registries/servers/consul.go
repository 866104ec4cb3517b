package servers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pilotmesh/pilot/test/testbed"
)

// Consul is a Consul without persistent data.
type Consul struct {
	*Server
	client *http.Client
}

// NewConsul prepares the Consul of the repository at root, with its files in dir. The error is Missing if it is not built.
func NewConsul(root, dir string) (*Consul, error) {
	program := filepath.Join(root, ".tools", "registries", "consul")
	if _, err := os.Stat(program); err != nil {
		return nil, &Missing{"Consul", "make tools-registries builds it, in some minutes"}
	}
	s, err := newServer("consul", dir)
	if err != nil {
		return nil, err
	}
	ports, err := testbed.FreePorts(3)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "consul.json")
	text := fmt.Sprintf(`{"ports": {"http": %d, "grpc": -1, "grpc_tls": -1, "dns": -1, "server": %d, "serf_lan": %d, "serf_wan": %d}}`, s.Port, ports[0], ports[1], ports[2])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	c := &Consul{Server: s, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	s.command = func() *exec.Cmd {
		cmd := exec.Command(program, "agent", "-dev", "-node=server", "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn", "-config-file="+config)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who end it in order
		return cmd
	}
	s.ready = func(ctx context.Context) error {
		body, err := c.Call(ctx, http.MethodGet, "/v1/health/service/consul", nil)
		if err == nil && !strings.Contains(body, `"server"`) {
			err = errors.New("it has not registered itself")
		}
		return err
	}
	return c, nil
}

// Call sends a request to the HTTP API. Any status but 200 is an error.
func (c *Consul) Call(ctx context.Context, method, path string, body any) (string, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return "", err
		}
		in = strings.NewReader(string(b))
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://"+c.Address()+path, in)
	if err != nil {
		return "", err
	}
	a, err := c.client.Do(q)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("consul answers %s: %s", a.Status, b)
	}
	return string(b), err
}

// Instance is an instance of a service in Consul.
type Instance struct {
	Node, Service, Address string
	Port                   int
	Meta                   map[string]string
	Status                 string // of its check; empty for passing
}

func (i Instance) id() string { return i.Service + "-" + i.Node }

// nodeAddress is the address of all nodes. Instances have addresses of their own.
const nodeAddress = "192.0.2.200"

func (i Instance) service() map[string]any {
	return map[string]any{"ID": i.id(), "Service": i.Service, "Address": i.Address, "Port": i.Port, "Meta": i.Meta}
}

func (i Instance) check() map[string]any {
	return map[string]any{"Node": i.Node, "CheckID": "service:" + i.id(), "Name": "check", "ServiceID": i.id(), "Status": cmp.Or(i.Status, "passing")}
}

// Register registers an instance with one check.
func (c *Consul) Register(ctx context.Context, i Instance) error {
	_, err := c.Call(ctx, http.MethodPut, "/v1/catalog/register", map[string]any{"Node": i.Node, "Address": nodeAddress, "Service": i.service(), "Check": i.check()})
	return err
}

// Deregister removes an instance, or all of a node if the service is empty.
func (c *Consul) Deregister(ctx context.Context, i Instance) error {
	body := map[string]any{"Node": i.Node}
	if i.Service != "" {
		body["ServiceID"] = i.id()
	}
	_, err := c.Call(ctx, http.MethodPut, "/v1/catalog/deregister", body)
	return err
}
