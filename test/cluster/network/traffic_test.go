package network_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/cluster/network"
	"github.com/pilotmesh/pilot/test/kit/process"
)

// bed is two network namespaces on a bridge, which represent pods, beside a real API server.
type bed struct {
	*testing.T
	c *cluster.Cluster
}

func (b *bed) do(args ...string) string {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		b.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The bed's own addresses; no cluster's slot has them.
const (
	device   = "pk98"
	gateway  = "10.252.0.1"
	dnsPort  = 5353
	nodePort = 30780
)

func (b *bed) build() {
	b.do("ip", "link", "add", device, "type", "bridge")
	b.Cleanup(func() { _ = exec.Command("ip", "link", "delete", device).Run() })
	b.do("ip", "addr", "add", gateway+"/16", "dev", device)
	b.do("ip", "link", "set", device, "up")
	b.do("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf."+device+".send_redirects=0")
	for i, ns := range []string{"pk98a", "pk98b"} {
		b.do("ip", "netns", "add", ns)
		b.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", ns).Run() })
		in := []string{"ip", "-n", ns}
		b.do("ip", "link", "add", ns+"v", "master", device, "type", "veth", "peer", "name", "eth0", "netns", ns)
		b.do("ip", "link", "set", ns+"v", "up")
		// Where br_netfilter is active, a pod that reaches itself through a service is bridged back to where it came from.
		b.do("ip", "link", "set", ns+"v", "type", "bridge_slave", "hairpin", "on")
		b.do(append(in, "addr", "add", fmt.Sprintf("10.252.0.%d/32", i+2), "dev", "eth0")...)
		b.do(append(in, "link", "set", "lo", "up")...)
		b.do(append(in, "link", "set", "eth0", "up")...)
		b.do(append(in, "route", "add", gateway, "dev", "eth0", "scope", "link")...)
		b.do(append(in, "route", "add", "default", "via", gateway)...)
	}
}

// in runs the workload in a namespace, or in this one, and returns its output.
func (b *bed) in(ns, program string, args ...string) (string, error) {
	if ns != "" {
		args = append([]string{"netns", "exec", ns, program}, args...)
		program = "ip"
	}
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	return string(out), err
}

func (b *bed) until(what string, f func() error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("%s: %v", what, err)
		}
	}
}

// TestTraffic sends real connections to service addresses of a real API server's Services, from namespaces and from the machine.
func TestTraffic(t *testing.T) {
	if err := cluster.Able(t.Context()); err != nil {
		t.Skip(err)
	}
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := binaries.Find(root, os.Getenv("KUBE_BINARIES"))
	if err != nil {
		t.Skip(err)
	}
	b := &bed{T: t}
	if b.c, err = cluster.Start(t.Context(), cluster.Options{Binaries: paths}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.c.Close(); err != nil {
			t.Error(err)
		}
	})
	b.build()
	workload := filepath.Join(t.TempDir(), "workload")
	build := exec.Command("go", "build", "-o", workload, "./workload")
	build.Dir, build.Env = filepath.Join(root, "test"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, ns := range []string{"pk98a", "pk98b"} {
		serve := exec.Command("ip", "netns", "exec", ns, workload, "serve", "--name", ns, "--http", ":8080", "--udp", ":8080")
		p, err := process.Start(serve)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
	}
	virtual := b.services()
	var log bytes.Buffer
	n := network.New(network.Options{Client: b.c.Client(), Table: "pilot-98", Devices: device, Nodes: []netip.Addr{netip.MustParseAddr(gateway)},
		Virtual: []netip.Prefix{virtual}, Pools: []netip.Prefix{netip.MustParsePrefix("10.252.64.0/24")},
		DNS: netip.AddrPortFrom(netip.MustParseAddr(gateway), dnsPort), Domain: "cluster.local", Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if out, err := exec.Command("nft", "list", "table", "inet", "pilot-98").CombinedOutput(); err == nil {
			t.Errorf("the table is still there:\n%s", out)
		}
	}()
	<-n.Synced()
	b.reach(workload)
}

// services writes two services: web, which both namespaces serve, and idle, which neither serves. It routes their addresses to the bridge.
func (b *bed) services() netip.Prefix {
	b.Helper()
	api := b.c.Client()
	tcp, udp, port, name, dgram := core.ProtocolTCP, core.ProtocolUDP, int32(8080), "http", "dgram"
	for _, s := range []string{"web", "idle"} {
		service := &core.Service{ObjectMeta: meta.ObjectMeta{Name: s}, Spec: core.ServiceSpec{Ports: []core.ServicePort{{Name: name, Port: 80}, {Name: dgram, Port: 80, Protocol: udp}}}}
		if s == "web" {
			service.Spec.Type, service.Spec.Ports[0].NodePort = core.ServiceTypeLoadBalancer, nodePort
		}
		if _, err := api.CoreV1().Services("default").Create(b.Context(), service, meta.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	slice := &discovery.EndpointSlice{ObjectMeta: meta.ObjectMeta{Name: "web", Labels: map[string]string{discovery.LabelServiceName: "web"}}, AddressType: discovery.AddressTypeIPv4,
		Ports:     []discovery.EndpointPort{{Name: &name, Port: &port, Protocol: &tcp}, {Name: &dgram, Port: &port, Protocol: &udp}},
		Endpoints: []discovery.Endpoint{{Addresses: []string{"10.252.0.2"}}, {Addresses: []string{"10.252.0.3"}}}}
	if _, err := api.DiscoveryV1().EndpointSlices("default").Create(b.Context(), slice, meta.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	virtual, err := netip.MustParseAddr(b.clusterIP("web")).Prefix(16)
	if err != nil {
		b.Fatal(err)
	}
	b.do("ip", "route", "add", virtual.String(), "dev", device)
	return virtual
}

func (b *bed) clusterIP(service string) string {
	s, err := b.c.Client().CoreV1().Services("default").Get(b.Context(), service, meta.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return s.Spec.ClusterIP
}

// reach calls every kind of address from everywhere.
func (b *bed) reach(workload string) {
	balancer := ""
	b.until("a LoadBalancer address", func() error {
		s, err := b.c.Client().CoreV1().Services("default").Get(b.Context(), "web", meta.GetOptions{})
		if err == nil && len(s.Status.LoadBalancer.Ingress) == 0 {
			err = fmt.Errorf("none yet")
		}
		if err == nil {
			balancer = s.Status.LoadBalancer.Ingress[0].IP
		}
		return err
	})
	web := b.clusterIP("web")
	for _, from := range []string{"", "pk98a", "pk98b"} {
		for _, target := range []string{"http://" + web, "udp://" + web + ":80", fmt.Sprintf("http://%s:%d", gateway, nodePort), "http://" + balancer} {
			b.until(target+" from "+from, func() error {
				out, err := b.in(from, workload, "call", "--count", "40", "--fresh", "--timeout", "2s", target)
				if err != nil || !strings.Contains(out, "pk98a") || !strings.Contains(out, "pk98b") {
					return fmt.Errorf("%w; want answers of both:\n%s", err, out)
				}
				return nil
			})
		}
		// Refused at once, not after a timeout.
		if out, err := b.in(from, workload, "call", "--timeout", "2s", "http://"+b.clusterIP("idle")); err == nil || !strings.Contains(out, "refused") {
			b.Errorf("a service without endpoints, from %q: %v\n%s", from, err, out)
		}
	}
	if out, err := b.in("pk98a", workload, "call", "--timeout", "1s", "tcp://192.0.2.1:80"); err == nil || !strings.Contains(out, "refused") {
		b.Errorf("a pod must not leave the machine: %v\n%s", err, out)
	}
	b.sees(workload)
}

// sees checks that a server sees the caller's own address, through a service as well.
func (b *bed) sees(workload string) {
	out, err := b.in("pk98a", workload, "call", "--count", "20", "--fresh", "-o", "answers", "http://"+b.clusterIP("web"))
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"name":"pk98b"`) && !strings.Contains(line, `"remote":"10.252.0.2:`) {
			b.Errorf("the caller's address was translated: %s", line)
		}
	}
	if err != nil || !strings.Contains(out, `"name":"pk98b"`) {
		b.Errorf("%v\n%s", err, out)
	}
}
