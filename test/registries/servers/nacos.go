package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/pilotmesh/pilot/test/testbed"
)

// Nacos is rnacos, a server with the open API of Nacos and its protocol on gRPC. It forgets ephemeral instances when it is killed.
type Nacos struct {
	*Server
	client *http.Client
}

// NacosOffset is how much higher the port for gRPC is than the one for HTTP: clients compute the one from the other.
const NacosOffset = 1000

// NewNacos prepares the Nacos of the repository at root, with its files in dir. The error is Missing if it is not built.
func NewNacos(root, dir string) (*Nacos, error) {
	program := filepath.Join(root, ".tools", "registries", "rnacos")
	if _, err := os.Stat(program); err != nil {
		return nil, &Missing{"Nacos", "scripts/registries.sh nacos builds rnacos with Rust's cargo, in about 15 minutes"}
	}
	s, err := newNacosServer(dir)
	if err != nil {
		return nil, err
	}
	console, err := testbed.FreePorts(1)
	if err != nil {
		return nil, err
	}
	s.data = filepath.Join(dir, "nacos-data")
	s.command = func() *exec.Cmd {
		cmd := exec.Command(program)
		grpc := strconv.Itoa(s.Port + NacosOffset)
		cmd.Env = append(os.Environ(), "RNACOS_HTTP_PORT="+strconv.Itoa(s.Port), "RNACOS_GRPC_PORT="+grpc, "RNACOS_RAFT_NODE_ADDR=127.0.0.1:"+grpc,
			"RNACOS_HTTP_CONSOLE_PORT="+strconv.Itoa(console[0]), "RNACOS_CONFIG_DB_DIR="+s.data, "RNACOS_DATA_DIR="+s.data, "RUST_LOG=warn")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who end it in order
		return cmd
	}
	n := &Nacos{s, &http.Client{}}
	s.ready = func(ctx context.Context) error {
		_, err := n.call(ctx, http.MethodGet, "/nacos/v1/ns/service/list", url.Values{"pageNo": {"1"}, "pageSize": {"1"}})
		return err
	}
	return n, nil
}

// newNacosServer is a server whose port for gRPC is free, too.
func newNacosServer(dir string) (*Server, error) {
	for range 20 {
		s, err := newServer("nacos", dir)
		if err != nil {
			return nil, err
		}
		if l, err := net.Listen("tcp", testbed.Loopback(s.Port+NacosOffset)); err == nil {
			return s, l.Close()
		}
	}
	return nil, errors.New("there is no pair of free ports for Nacos")
}

// Register registers an instance, or replaces it. Without "ephemeral" among the fields, it is persistent.
func (n *Nacos) Register(ctx context.Context, service, address string, port int, fields map[string]string) error {
	return n.instance(ctx, http.MethodPost, service, address, port, fields)
}

// Deregister takes an instance away.
func (n *Nacos) Deregister(ctx context.Context, service, address string, port int, fields map[string]string) error {
	return n.instance(ctx, http.MethodDelete, service, address, port, fields)
}

func (n *Nacos) instance(ctx context.Context, method, service, address string, port int, fields map[string]string) error {
	q := url.Values{"serviceName": {service}, "ip": {address}, "port": {strconv.Itoa(port)}, "ephemeral": {"false"}}
	for key, value := range fields {
		q.Set(key, value)
	}
	_, err := n.call(ctx, method, "/nacos/v1/ns/instance", q)
	return err
}

// call sends a request to the open API. Any status but 200 is an error.
func (n *Nacos) call(ctx context.Context, method, path string, q url.Values) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.Address()+path+"?"+q.Encode(), nil)
	if err != nil {
		return "", err
	}
	a, err := n.client.Do(r)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(io.LimitReader(a.Body, 1<<20))
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, a.Status, body)
	}
	return string(body), err
}
