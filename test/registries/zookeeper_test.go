package registries

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pilotmesh/pilot/internal/api/registry"
)

const jar = "/usr/share/java/zookeeper.jar"

// newZooKeeper starts a ZooKeeper, whose data survive a kill.
func newZooKeeper(t *testing.T) *server {
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skipf("no Java: %v", err)
	}
	if _, err := os.Stat(jar); err != nil {
		t.Skipf("no ZooKeeper (%v): make tools-registries installs it", err)
	}
	dir := t.TempDir()
	s := &server{T: t, port: freePort(t), log: filepath.Join(dir, "log")}
	config := filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=500\nminSessionTimeout=1000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n", filepath.Join(dir, "data"), s.port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.command = func() *exec.Cmd {
		return exec.Command(java, "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jar, "org.apache.zookeeper.server.ZooKeeperServerMain", config)
	}
	s.ready = func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(s.port), time.Second)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte("srvr"))
		b := make([]byte, 1000)
		n, _ := c.Read(b)
		return strings.Contains(string(b[:n]), "Zookeeper version")
	}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) connect() *zk.Conn {
	conn, _, err := zk.Connect([]string{"127.0.0.1:" + strconv.Itoa(s.port)}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(conn.Close)
	return conn
}

// put creates a node with those above it.
func put(t *testing.T, conn *zk.Conn, at, data string, flags int32) {
	t.Helper()
	for i := 1; i < len(at); i++ {
		if at[i] == '/' {
			if _, err := conn.Create(at[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				t.Fatal(err)
			}
		}
	}
	if _, err := conn.Create(at, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
}

func provider(text string) string {
	u, _ := url.Parse(text)
	return "/dubbo" + u.Path + "/providers/" + url.QueryEscape(text)
}

// TestZooKeeper: providers and applications come and go with their nodes, roots may be created later, and a server that is killed takes nothing along.
func TestZooKeeper(t *testing.T) {
	s := newZooKeeper(t)
	b := newBed(t, fmt.Sprintf(`{type: zookeeper, addresses: ["127.0.0.1:%d"], zkSessionTimeout: 2s}`, s.port))
	b.want(registry.Synced, "")
	conn := s.connect()
	first := provider("dubbo://192.0.2.1:20880/com.acme.Greeter?interface=com.acme.Greeter")
	put(t, conn, first, "", 0)
	put(t, conn, provider("tri://192.0.2.2:50051/com.acme.Orders?group=g"), "", 0)
	put(t, conn, "/services/orders/1", `{"address":"192.0.2.3","port":8080,"payload":{"metadata":{"instance_status":"UP"}}}`, 0)
	all := []string{"com.acme.greeter.dubbo:20880 DUBBO 192.0.2.1:20880", "com.acme.orders-g.dubbo:50051 HTTP2 192.0.2.2:50051", "orders.services.zookeeper:8080 HTTP 192.0.2.3:8080"}
	b.want(registry.Synced, all...)
	if _, err := conn.Set("/services/orders/1", []byte(`{"address":"192.0.2.3","port":8080,"payload":{"metadata":{"instance_status":"OUT_OF_SERVICE"}}}`), -1); err != nil {
		t.Fatal(err)
	}
	all[2] = "orders.services.zookeeper:8080 HTTP"
	b.want(registry.Synced, all...)
	s.kill()
	b.want(registry.Stale, all...)
	s.start()
	b.want(registry.Synced, all...)
	conn = s.connect()
	put(t, conn, provider("dubbo://192.0.2.4:20880/com.acme.Greeter?interface=com.acme.Greeter"), "", 0)
	if err := conn.Delete(first, -1); err != nil {
		t.Fatal(err)
	}
	all[0] = "com.acme.greeter.dubbo:20880 DUBBO 192.0.2.4:20880"
	b.want(registry.Synced, all...)
}

// TestExpiredProvider: the nodes of a provider whose session ends are believed to be gone.
func TestExpiredProvider(t *testing.T) {
	s := newZooKeeper(t)
	b := newBed(t, fmt.Sprintf(`{type: zookeeper, addresses: ["127.0.0.1:%d"]}`, s.port))
	conn := s.connect()
	put(t, conn, provider("dubbo://192.0.2.1:20880/com.acme.Greeter?interface=com.acme.Greeter"), "", zk.FlagEphemeral)
	b.want(registry.Synced, "com.acme.greeter.dubbo:20880 DUBBO 192.0.2.1:20880")
	conn.Close()
	b.want(registry.Synced, "")
}
