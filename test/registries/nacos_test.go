package registries

import (
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/test/registries/servers"
	"github.com/pilotmesh/pilot/test/repo"
)

// nacos is a real server with the protocols of Nacos.
type nacos struct {
	*server
	api *servers.Nacos
}

func newNacos(t *testing.T) *nacos {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	n, err := servers.NewNacos(root, t.TempDir())
	if err != nil {
		startServer(t, nil, nil, err)
	}
	return &nacos{startServer(t, n.Server, nil, nil), n}
}

// add registers an instance. more are further fields, KEY and VALUE in turn.
func (n *nacos) add(service, address string, more ...string) {
	n.Helper()
	if err := n.api.Register(n.Context(), service, address, 8080, fields(more)); err != nil {
		n.Fatal(err)
	}
}

func (n *nacos) remove(service, address string, more ...string) {
	n.Helper()
	if err := n.api.Deregister(n.Context(), service, address, 8080, fields(more)); err != nil {
		n.Fatal(err)
	}
}

func fields(list []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

func (n *nacos) entry(more string) string {
	return fmt.Sprintf(`{type: nacos, addresses: ["127.0.0.1:%d"], refreshInterval: 1s%s}`, n.Port, more)
}

// TestNacos: instances that come, go, and are disabled, healthy or not, ephemeral or persistent, are in force as the server says. When it
// has lost its data, they stay, and new ones are added.
func TestNacos(t *testing.T) {
	n := newNacos(t)
	n.add("orders", "192.0.2.1")
	n.add("orders", "192.0.2.2", "ephemeral", "true")
	b := newBed(t, n.entry(", protection: {hold: 1h}"))
	const orders = "orders.default-group.public.nacos:8080 HTTP"
	b.want(registry.Synced, orders+" 192.0.2.1:8080 192.0.2.2:8080")
	n.add("orders", "192.0.2.3")
	n.add("db", "192.0.2.1", "metadata", `{"protocol":"tcp"}`)
	const db = "db.default-group.public.nacos:8080 TCP 192.0.2.1:8080"
	b.want(registry.Synced, db, orders+" 192.0.2.1:8080 192.0.2.2:8080 192.0.2.3:8080")
	n.remove("orders", "192.0.2.3")
	n.remove("orders", "192.0.2.2", "ephemeral", "true")
	b.want(registry.Synced, db, orders+" 192.0.2.1:8080")
	n.add("orders", "192.0.2.4", "weight", "0")
	n.add("orders", "192.0.2.1", "enabled", "false")
	b.want(registry.Synced, db, orders) // the one is known and serves nothing, and the server lists no other
	n.remove("orders", "192.0.2.4")
	b.want(registry.Synced, db)
	n.add("orders", "192.0.2.1", "enabled", "true")
	b.want(registry.Synced, db, orders+" 192.0.2.1:8080")
	n.kill()
	b.want(registry.Stale, db, orders+" 192.0.2.1:8080")
	if err := n.Wipe(); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.add("orders", "192.0.2.5")
	b.want(registry.Held, db, orders+" 192.0.2.1:8080 192.0.2.5:8080")
}

// TestNacosScopes: groups and the namespace of the entry are read, and no others.
func TestNacosScopes(t *testing.T) {
	n := newNacos(t)
	n.add("orders", "192.0.2.1")
	n.add("orders", "192.0.2.2", "groupName", "PAY_GROUP")
	n.add("orders", "192.0.2.3", "groupName", "OTHER")
	n.add("orders", "192.0.2.4", "namespaceId", "dev")
	b := newBed(t, n.entry(", nacosGroups: [DEFAULT_GROUP, PAY_GROUP]"))
	b.want(registry.Synced, "orders.default-group.public.nacos:8080 HTTP 192.0.2.1:8080", "orders.pay-group.public.nacos:8080 HTTP 192.0.2.2:8080")
	dev := newBed(t, n.entry(", nacosNamespaceId: dev"))
	dev.want(registry.Synced, "orders.default-group.dev.nacos:8080 HTTP 192.0.2.4:8080")
}
