package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// inside is set in the process that runs in a network namespace of its own.
const inside = "PILOT_TEST_IN_NAMESPACE"

// TestNames runs TestNamesInside in a network namespace of its own, where it may redirect what an application sends.
func TestNames(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNamesInside$", "-test.v")
	c.Env = append(os.Environ(), inside+"=1", "PILOT_AGENT="+agentBinary, "PILOT_DISCOVERY="+discoveryBinary, "PILOTCTL="+controlBinary)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestNamesInside") {
		t.Errorf("%v\n%s", err, out)
	}
}

// application is the user of the application. Only its packets are redirected.
const application = 4242

// redirect is what the capture of traffic does for the application: names go to the agent, and connections to Envoy.
const redirect = `
ip link set lo up
ip link add eth9 type veth peer name eth9p
ip link set eth9p up
ip addr add 10.88.0.2/24 dev eth9
ip link set eth9 up
ip route add default dev eth9
iptables -w -t nat -A OUTPUT -m owner --uid-owner 4242 -p udp --dport 53 -j REDIRECT --to-ports 15053
iptables -w -t nat -A OUTPUT -m owner --uid-owner 4242 -p tcp --dport 53 -j REDIRECT --to-ports 15053
iptables -w -t nat -A OUTPUT -m owner --uid-owner 4242 -p tcp ! -d 127.0.0.0/8 -j REDIRECT --to-ports 15001
`

// TestNamesInside: an application resolves the host of a ServiceEntry, whose address was allocated, through the agent, and reaches it
// through Envoy. New names come, old ones go, and both stay while the control plane is gone.
func TestNamesInside(t *testing.T) {
	if os.Getenv(inside) == "" {
		t.Skip("TestNames runs it")
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", redirect).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := newBed(t)
	b.entry("pay", "240.240.0.7")
	b.serve()
	o := options()
	o.Env = []string{
		"ISTIO_META_INTERCEPTION_MODE=REDIRECT", "ISTIO_META_DNS_CAPTURE=true", "DNS_RESOLV_CONF=" + write(t, "resolv.conf", "nameserver "+nobodyKnows(t)+"\n"), "INSTANCE_IP=10.88.0.2",
	}
	a := b.ready(o, testbed.Node{})

	b.resolves("pay.example.com", "240.240.0.7")
	b.reaches("pay.example.com")
	b.resolves("late.example.com", "unknown")
	b.entry("late", "240.240.0.8")
	b.resolves("late.example.com", "240.240.0.8")
	b.reaches("late.example.com")
	b.Discovery.Kill()
	b.resolves("late.example.com", "240.240.0.8")
	b.reaches("pay.example.com")
	b.serve()
	if err := b.Remove("late.yaml"); err != nil {
		t.Fatal(err)
	}
	b.resolves("late.example.com", "unknown")
	b.resolves("pay.example.com", "240.240.0.7")
	for path, want := range map[string]string{"/debug/ndsz": `"pay.example.com": [`, "/metrics": "pilot_agent_dns_names 1\n"} {
		page, err := fetch(t.Context(), a.StatusPort, path)
		if err != nil || !strings.Contains(page, want) {
			t.Errorf("%s: %v\n%s", path, err, page)
		}
	}
}

// entry declares a host with an allocated address, whose endpoint is the backend.
func (b *bed) entry(name, address string) {
	b.Helper()
	if _, err := b.Write(name+".yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%[1]s.example.com]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 9080, name: tcp, protocol: TCP}]
  endpoints: [{address: 127.0.0.1, ports: {tcp: %[2]d}}]
status: {addresses: [{host: %[1]s.example.com, value: %[3]s}]}
`, name, b.backend.port, address)); err != nil {
		b.Fatal(err)
	}
}

// run runs a program in Python as the application, and returns its output.
func (b *bed) run(ctx context.Context, program string, args ...string) (string, error) {
	// It becomes the application's user when all modules are loaded, because that user may not read them everywhere.
	program = fmt.Sprintf("import encodings.idna, os, socket, sys, urllib.request\nos.setuid(%d)\n", application) + program
	c := exec.CommandContext(ctx, "python3", append([]string{"-c", program}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// resolves waits until the application gets an address for a name; "unknown" means that the name does not exist.
func (b *bed) resolves(name, want string) {
	b.Helper()
	b.await(name+" to be "+want, func(ctx context.Context) error {
		got, err := b.run(ctx, `
try: print(*sorted({a[4][0] for a in socket.getaddrinfo(sys.argv[1], 80)}))
except socket.gaierror as e: print("unknown" if e.errno == socket.EAI_NONAME else e)`, name)
		if err == nil && got != want {
			err = fmt.Errorf("it is %s", got)
		}
		return err
	})
}

// reaches waits until a request of the application is answered.
func (b *bed) reaches(name string) {
	b.Helper()
	b.await("an answer from "+name, func(ctx context.Context) error {
		got, err := b.run(ctx, `print(urllib.request.urlopen("http://%s:9080/" % sys.argv[1], timeout=10).status)`, name)
		if err == nil && got != "200" {
			err = errors.New(got)
		}
		return err
	})
}

// nobodyKnows serves DNS at port 53 of an address, and knows no name.
func nobodyKnows(t *testing.T) string {
	t.Helper()
	const at = "127.9.9.9"
	c, err := net.ListenPacket("udp", at+":53")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = c.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		q := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(q)
			if err != nil {
				return
			}
			if n > 4 {
				q[2], q[3] = q[2]|0x80, q[3]&0xf0|3 // a response: the name does not exist
				_, _ = c.WriteTo(q[:n], from)
			}
		}
	}()
	return at
}
