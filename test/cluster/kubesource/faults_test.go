package kubesource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
)

// link is the way between a source and the API server.
type link struct {
	mu sync.Mutex
	// closed: no client gets through, and there are no connections.
	closed bool
	conns  map[*linked]bool
}

// linked is a connection over a link.
type linked struct {
	net.Conn
	// silent is closed when the connection falls silent: writes are lost, and nothing can be read.
	silent chan struct{}
	done   chan struct{}
	once   sync.Once
}

// link makes a way to the API server.
func (p *place) link() *link {
	l := &link{conns: map[*linked]bool{}}
	p.Cleanup(func() { l.set(true) })
	return l
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.New("the way to the API server is closed")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	made := &linked{Conn: c, silent: make(chan struct{}), done: make(chan struct{})}
	l.conns[made] = true
	return made, nil
}

// set closes or opens the way. If it is closed, all connections end.
func (l *link) set(closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = closed
	for c := range l.conns {
		if closed {
			_ = c.Close()
			delete(l.conns, c)
		}
	}
}

// silence makes all present connections silent, as a router does that has forgotten them. New connections work.
func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		close(c.silent)
		delete(l.conns, c)
	}
}

func (c *linked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.silent:
		<-c.done
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *linked) Write(b []byte) (int, error) {
	select {
	case <-c.silent:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func (c *linked) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// services makes Services of the names, and returns their keys.
func (p *place) services(names ...string) (keys []api.Key) {
	p.Helper()
	for _, name := range names {
		p.apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {ports: [{port: 80}]}}", name))
		keys = append(keys, p.registry("Service", name))
	}
	return keys
}

// forget makes the API server forget all versions of objects but the present ones, and checks that it has.
func (p *place) forget(version string) {
	p.Helper()
	p.must(p.c.Compact(p.Context()))
	p.must(p.c.RestartAPIServer(p.Context()))
	w, err := p.api.CoreV1().Services(p.namespace).Watch(p.Context(), meta.ListOptions{ResourceVersion: version})
	if err == nil {
		defer w.Stop()
		if e := <-w.ResultChan(); e.Type == watch.Error {
			err = apierrors.FromObject(e.Object)
		}
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		p.Fatalf("a watch from version %s: %v, want that it is gone", version, err)
	}
}

// TestCompacted: the source loses the API server while objects change and etcd is compacted, so that its watch cannot continue. It learns of
// these changes, and of nothing else.
func TestCompacted(t *testing.T) {
	p := on(t)
	keys := p.services("changed", "removed", "same")
	l, config := p.link(), p.account()
	config.Dial = l.dial
	s := p.start(kubesource.Options{Config: config})
	now, err := p.api.CoreV1().Services(p.namespace).Get(t.Context(), "same", meta.GetOptions{})
	p.must(err)
	l.set(true)
	s.until("the loss is reported", s.problem("cannot reach the API server"))
	p.kubectl("", "patch", "service", "changed", "--type=json", "-p", `[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]`)
	p.kubectl("", "delete", "service", "removed")
	more := p.services("more")[0]
	p.forget(now.ResourceVersion)
	l.set(false)
	s.until("the changes", func() bool { return s.has(more)() && s.lacks(keys[1])() })
	s.until("the loss is over", not(s.problem("cannot reach")))
	s.until("the change of a service", func() bool {
		service := value[*kube.Service](s.state[keys[0]])
		return service != nil && service.Ports[0].Number == 81
	})
	for i, want := range []int{2, 2, 1} { // made and changed; made and removed; made
		if got := s.events(keys[i]); got != want {
			t.Errorf("%v has %d events, want %d", keys[i], got, want)
		}
	}
}

// TestSilentConnection: the connection to the API server falls silent and is never closed. The source notices, connects again, and has lost nothing.
func TestSilentConnection(t *testing.T) {
	// Connections are checked after 30 s without news; tests have no time for that.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	p := on(t)
	keys := p.services("same", "removed")
	l, config := p.link(), p.account()
	config.Dial = l.dial
	s := p.start(kubesource.Options{Config: config})
	l.silence()
	p.kubectl("", "delete", "service", "removed")
	more := p.services("more")[0]
	s.until("the changes", func() bool { return s.has(more)() && s.lacks(keys[1])() })
	if got := s.events(keys[0]); got != 1 {
		t.Errorf("%d events of an unchanged service", got)
	}
}

// TestLargeObject: the API server takes objects of more than a megabyte, and refuses objects of 10 megabytes. The source takes what the API server
// takes.
func TestLargeObject(t *testing.T) {
	p := on(t)
	p.definitions()
	s := p.start(kubesource.Options{Configuration: true})
	large := func(name string, endpoints, labels int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s}\nspec:\n  hosts: [%[1]s.example.com]\n  resolution: STATIC\n  ports: [{number: 80, name: http}]\n  endpoints:\n", name)
		for i := range endpoints {
			fmt.Fprintf(&b, "  - address: 10.0.%d.%d\n    labels:\n", i>>8, i&255)
			for j := range labels {
				fmt.Fprintf(&b, "      l%d: %s\n", j, strings.Repeat("x", 63))
			}
		}
		return b.String()
	}
	p.kubectl(large("large", 4000, 4), "create", "-f", "-")
	s.until("an object of a megabyte", s.has(p.config("ServiceEntry", "large")))
	cmd := exec.CommandContext(t.Context(), p.c.Kubectl(), "--kubeconfig", p.c.Kubeconfig(), "--namespace", p.namespace, "create", "-f", "-")
	cmd.Stdin = strings.NewReader(large("huge", 4000, 40))
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("the API server takes 10 MB: %s", out)
	}
	small := p.config("ServiceEntry", "small")
	p.kubectl(large("small", 1, 1), "create", "-f", "-")
	s.until("an object after it", s.has(small))
	if !s.now(s.lacks(p.config("ServiceEntry", "huge"))) {
		t.Error("the source has an object that the API server refused")
	}
}
