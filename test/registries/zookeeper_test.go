package registries

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/test/registries/servers"
)

// newZooKeeper starts a ZooKeeper, whose data survive a kill.
func newZooKeeper(t *testing.T) *server {
	one, err := servers.NewZooKeeper(t.TempDir())
	return startServer(t, one, nil, err)
}

func (s *server) connect() *servers.Session {
	c, err := servers.NewSession(s.Server, 10*time.Second)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(c.Close)
	return c
}

// put creates a node with those above it.
func put(t *testing.T, c *servers.Session, at, data string, flags int32) {
	t.Helper()
	if err := c.Put(at, data, flags); err != nil {
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
	b := newBed(t, fmt.Sprintf(`{type: zookeeper, addresses: ["127.0.0.1:%d"], zkSessionTimeout: 2s}`, s.Port))
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
	b := newBed(t, fmt.Sprintf(`{type: zookeeper, addresses: ["127.0.0.1:%d"]}`, s.Port))
	conn := s.connect()
	put(t, conn, provider("dubbo://192.0.2.1:20880/com.acme.Greeter?interface=com.acme.Greeter"), "", zk.FlagEphemeral)
	b.want(registry.Synced, "com.acme.greeter.dubbo:20880 DUBBO 192.0.2.1:20880")
	conn.Close()
	b.want(registry.Synced, "")
}

// TestWipedZooKeeper: services that a server without its data does not list are held, and new ones are in force.
func TestWipedZooKeeper(t *testing.T) {
	s := newZooKeeper(t)
	b := newBed(t, fmt.Sprintf(`{type: zookeeper, addresses: ["127.0.0.1:%d"], zkSessionTimeout: 2s, protection: {hold: 1h}}`, s.Port))
	conn := s.connect()
	put(t, conn, provider("dubbo://192.0.2.1:20880/com.acme.Greeter"), "", 0)
	put(t, conn, provider("dubbo://192.0.2.2:20880/com.acme.Greeter"), "", 0)
	put(t, conn, "/dubbo/metadata/app/r1", `{"services":{"g/com.acme.Orders:1.0:tri":{"name":"com.acme.Orders","group":"g","version":"1.0","protocol":"tri","port":50051}}}`, 0)
	put(t, conn, "/services/app/192.0.2.7:50051", `{"address":"192.0.2.7","port":50051,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":50051,\"protocol\":\"tri\"}]",`+
		`"dubbo.metadata.revision":"r1","dubbo.metadata.storage-type":"remote"}}}`, 0)
	app, orders := "app.services.zookeeper:50051 HTTP2 192.0.2.7:50051", "com.acme.orders-g-1-0.dubbo:50051 HTTP2 192.0.2.7:50051"
	b.want(registry.Synced, app, "com.acme.greeter.dubbo:20880 DUBBO 192.0.2.1:20880 192.0.2.2:20880", orders)
	conn.Close()
	s.kill()
	if err := s.Wipe(); err != nil {
		t.Fatal(err)
	}
	s.start()
	put(t, s.connect(), provider("dubbo://192.0.2.3:20880/com.acme.Greeter"), "", 0)
	b.want(registry.Held, app, "com.acme.greeter.dubbo:20880 DUBBO 192.0.2.1:20880 192.0.2.2:20880 192.0.2.3:20880", orders)
}
