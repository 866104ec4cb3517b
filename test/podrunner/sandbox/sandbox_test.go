package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
	"github.com/pilotmesh/pilot/test/podrunner/stage"
)

// bed is a host with one pod.
type bed struct {
	t    *testing.T
	host *sandbox.Host
	pod  *sandbox.Pod
	root string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	root := t.TempDir()
	if err := sandbox.Supported(root); errors.Is(err, sandbox.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	program, err := stage.Build(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	host, err := sandbox.Open(sandbox.Config{
		Bridge: "prtest", Stage: program, Root: root,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.63.4.0/22"), netip.MustParsePrefix("fd70:6d:99:1::/64")},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, host: host, root: root}
	b.pod = b.newPod("first")
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bed) newPod(name string) *sandbox.Pod {
	b.t.Helper()
	pod, err := b.host.NewPod(sandbox.PodConfig{Hostname: name})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := pod.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return pod
}

// TestBridgeKeepsAddress: the link address of the bridge stays the same whatever pods come and go. Pods know it for a minute without asking.
func TestBridgeKeepsAddress(t *testing.T) {
	b := newBed(t)
	address := func() string {
		text, err := os.ReadFile("/sys/class/net/prtest/address")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	before := address()
	for i := range 4 {
		pod, err := b.host.NewPod(sandbox.PodConfig{Hostname: "short-" + strconv.Itoa(i)})
		if err != nil {
			t.Fatal(err)
		}
		if now := address(); now != before {
			t.Errorf("the address is %s with one more pod, and was %s", now, before)
		}
		if err := pod.Close(); err != nil {
			t.Fatal(err)
		}
		if now := address(); now != before {
			t.Errorf("the address is %s after the end of a pod, and was %s", now, before)
		}
	}
}

// run is a container under test.
type run struct {
	*sandbox.Process
	mu     sync.Mutex
	output bytes.Buffer
	exit   chan sandbox.Exit
}

func (b *bed) config(name string, args ...string) (sandbox.ProcessConfig, *run) {
	b.t.Helper()
	tree, err := sandbox.Overlay("/", filepath.Join(b.root, name))
	if err != nil {
		b.t.Fatal(err)
	}
	r := &run{exit: make(chan sandbox.Exit, 1)}
	return sandbox.ProcessConfig{
		ID: name, Root: tree,
		Spec: stage.Spec{Args: args, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Capabilities: 0xa80425fb},
		Output: func(stream string, from io.Reader) {
			text, _ := io.ReadAll(from)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.output.Write(text)
		},
		Ended: func(exit sandbox.Exit) { r.exit <- exit },
	}, r
}

func (b *bed) start(config sandbox.ProcessConfig, r *run) *run {
	b.t.Helper()
	process, err := b.pod.Start(config)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Process = process
	return r
}

func (b *bed) ended(r *run) (sandbox.Exit, string) {
	b.t.Helper()
	select {
	case exit := <-r.exit:
		return exit, r.output.String()
	case <-time.After(20 * time.Second):
		b.t.Fatal("the process did not end in 20 s")
		panic("unreachable")
	}
}

func TestContainer(t *testing.T) {
	b := newBed(t)
	volume := t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "key"), []byte("value\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config, r := b.config("one", "sh", "-c", `
		echo pid $$; hostname; cat /data/key; echo x > /data/new && echo wrote; touch /etc/mark && echo marked
		touch /read/x 2>/dev/null || echo "read only"; ls /dev/null /dev/ptmx; ls /proc | grep -c '^[0-9]'
		ip -4 -o addr show eth0 | awk '{print $4}'; ip -6 route show default | awk '{print $3}'; grep CapEff /proc/self/status
		echo 1 > /proc/sys/net/ipv4/ip_forward || echo "settings are read-only"; exit 3`)
	for target, readOnly := range map[string]bool{"/data": false, "/read": true} {
		tree, err := sandbox.Bind(volume, readOnly)
		if err != nil {
			t.Fatal(err)
		}
		config.Mounts = append(config.Mounts, sandbox.Mount{Tree: tree, Target: target})
	}
	exit, output := b.ended(b.start(config, r))
	if exit.Code != 3 || exit.Signal != 0 {
		t.Errorf("exit %+v, want code 3", exit)
	}
	for _, want := range []string{
		"pid 1\n", "first\n", "value\n", "wrote\n", "marked\n", "read only\n", "/dev/ptmx\n", "10.63.4.2/32\n",
		"fd70:6d:99:1::1\n", "CapEff:\t00000000a80425fb\n", "settings are read-only\n",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("output lacks %q:\n%s", want, output)
		}
	}
	if _, err := os.Stat("/etc/mark"); err == nil {
		t.Error("a container wrote to the machine's root")
	}
	if _, err := os.Stat(filepath.Join(volume, "new")); err != nil {
		t.Errorf("a container's file is not in the volume: %v", err)
	}
}

func TestIdentity(t *testing.T) {
	b := newBed(t)
	config, r := b.config("user", "sh", "-c", `id -u; id -g; id -G; touch /new 2>/dev/null || echo refused; grep -E 'CapEff|NoNewPrivs' /proc/self/status; pwd`)
	config.Spec.User, config.Spec.Group, config.Spec.Groups = 1337, 1338, []int{1338, 2000}
	config.Spec.NoNewPrivs, config.Spec.Dir, config.Spec.ReadOnlyRoot = true, "/made/here", true
	if err := os.MkdirAll(filepath.Join(b.root, "user/upper/made/here"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, output := b.ended(b.start(config, r))
	want := "1337\n1338\n1338 2000\n"
	if !strings.HasPrefix(output, want) || !strings.Contains(output, "refused\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n") || !strings.Contains(output, "/made/here\n") {
		t.Errorf("output:\n%s", output)
	}
}

func TestBadCommand(t *testing.T) {
	b := newBed(t)
	for n, test := range []struct{ command, want string }{
		{"no-such-program", `exec: "no-such-program": executable file not found in $PATH`},
		{"/no/such", `exec: "/no/such": no such file or directory`},
		{"/etc/passwd", `exec: "/etc/passwd": permission denied`},
	} {
		config, _ := b.config("bad"+strconv.Itoa(n), test.command)
		_, err := b.pod.Start(config)
		failure, ok := errors.AsType[*stage.StartError](err)
		if !ok || !failure.Command || failure.Message != test.want {
			t.Errorf("%s: got %v, want %s", test.command, err, test.want)
		}
	}
}

func TestKillTakesEverything(t *testing.T) {
	b := newBed(t)
	config, r := b.config("tree", "sh", "-c", `trap "" TERM; sleep 1000 & sleep 1000 & echo up; wait; wait; sleep 1000`)
	b.start(config, r)
	var output, errs bytes.Buffer
	code, err := r.Exec(t.Context(), stage.Spec{Args: []string{"sh", "-c", "id -u; hostname; cat >&2; sleep 0.1; exit 4"}, Env: []string{"PATH=/bin:/usr/bin"}},
		sandbox.Streams{Input: strings.NewReader("input"), Output: &output, Error: &errs})
	if err != nil || code != 4 {
		t.Errorf("exec: code %d, error %v", code, err)
	}
	if got := output.String() + errs.String(); got != "0\nfirst\ninput" {
		t.Errorf("exec wrote %q", got)
	}
	output.Reset()
	code, err = r.Exec(t.Context(), stage.Spec{Args: []string{"sh", "-c", "tty; stty size"}, Env: []string{"PATH=/bin:/usr/bin"}},
		sandbox.Streams{Input: strings.NewReader(""), Output: &output, Terminal: true, Sizes: sizes(80, 25)})
	if err != nil || code != 0 || !strings.HasPrefix(output.String(), "/dev/pts/") {
		t.Errorf("exec in a terminal: code %d, error %v, wrote %q", code, err, output.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Exec(ctx, stage.Spec{Args: []string{"/bin/sleep", "1000"}}, sandbox.Streams{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("exec beyond its time: %v", err)
	}
	if err := r.Pause(true); err != nil {
		t.Error(err)
	}
	if err := r.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	exit, _ := b.ended(r)
	if exit.Code != 137 || exit.Signal != 9 {
		t.Errorf("exit %+v", exit)
	}
	if _, err := r.Exec(t.Context(), stage.Spec{Args: []string{"true"}}, sandbox.Streams{}); !errors.Is(err, sandbox.ErrEnded) {
		t.Errorf("exec in a container that ended: %v", err)
	}
}

func sizes(width, height uint16) <-chan sandbox.Size {
	one := make(chan sandbox.Size, 1)
	one <- sandbox.Size{Width: width, Height: height}
	close(one)
	return one
}

func TestNetwork(t *testing.T) {
	b := newBed(t)
	const server = `import socket,sys
s=socket.create_server(("::",8080),family=socket.AF_INET6,dualstack_ipv6=True)
print("up",flush=True)
while True:
    c,a=s.accept(); c.sendall(b"hello"); c.close()`
	config, r := b.config("server", "python3", "-c", server)
	b.start(config, r)
	defer func() { _ = r.Signal(syscall.SIGKILL) }()
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := b.pod.Dial(t.Context(), 8080)
		if err == nil {
			text, _ := io.ReadAll(conn)
			if string(text) != "hello" {
				t.Errorf("read %q", text)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	other := &bed{t: t, host: b.host, root: b.root, pod: b.newPod("second")}
	for i, address := range b.pod.Addresses() {
		config, client := b.config("client"+string(rune('a'+i)), "python3", "-c", `import socket,sys
c=socket.create_connection((sys.argv[1],8080),5); print(c.recv(100).decode(), c.getsockname()[0])`, address.String())
		if _, output := other.ended(other.start(config, client)); output != "hello "+other.pod.Addresses()[i].String()+"\n" {
			t.Errorf("client of %v: %q", address, output)
		}
	}
}
