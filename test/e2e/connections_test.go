package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// greeters are a service whose two versions speak first, in TLS if its protocol is.
func greeters(t *testing.T, name, protocol string) service {
	t.Helper()
	start := testbed.StartTCP
	if protocol == "TLS" {
		start = testbed.StartTLS
	}
	var versions []*testbed.Backend
	for _, version := range []string{"v1", "v2"} {
		b, err := start(version)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		versions = append(versions, b)
	}
	s := newService(t, name, versions...)
	s.protocol = protocol
	return s
}

// rules is a VirtualService with the given YAML for its list tcp or tls.
func (s service) rules(list, yaml string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[2]s, other.%[2]s]
  %[3]s:
%[4]s`, s.name, s.host(), list, yaml)
}

// greets waits until a connection to the service, for a server name if there is one, reaches a version, and wants those
// after it to do so too.
func (m *mesh) greets(s service, serverName, version string) {
	m.Helper()
	greeted := func(ctx context.Context) error {
		got, err := testbed.Greeting(ctx, s.port, serverName)
		if err == nil && got != version {
			err = fmt.Errorf("%s greets %q as %s, want %s", s.name, serverName, got, version)
		}
		return err
	}
	m.await("new connections to be told what is new", greeted)
	for range 10 {
		if err := greeted(m.Context()); err != nil {
			m.Fatal(err)
		}
	}
}

// tcp: connections follow the rules, weights too.
func (m *mesh) tcp() {
	store := greeters(m.T, "store", "TCP")
	m.Cleanup(func() { m.remove("store.yaml") })
	split := func(v1, v2 int) string {
		return store.entry() + store.subsets() + store.rules("tcp", fmt.Sprintf(`
  - route:
    - {destination: {host: %[1]s, subset: v1}, weight: %[2]d}
    - {destination: {host: %[1]s, subset: v2}, weight: %[3]d}
`, store.host(), v1, v2))
	}
	m.write("store.yaml", split(0, 100))
	m.greets(store, "", "v2")
	m.write("store.yaml", split(100, 0))
	m.greets(store, "", "v1")
	m.settle(m.write("store.yaml", split(70, 30)))
	const n = 300
	second := 0
	for range n {
		who, err := testbed.Greeting(m.Context(), store.port, "")
		if err != nil {
			m.Fatal(err)
		}
		if who == "v2" {
			second++
		}
	}
	m.about("connections to v2", second, n, 0.3)
}

// tls: connections go by the name that the client asks for, unopened.
func (m *mesh) tls() {
	vault := greeters(m.T, "vault", "TLS")
	m.Cleanup(func() { m.remove("vault.yaml") })
	by := func(one, two string) string {
		return vault.entry() + vault.subsets() + vault.rules("tls", fmt.Sprintf(`
  - match: [{sniHosts: [%[1]s]}]
    route: [{destination: {host: %[1]s, subset: %[2]s}}]
  - match: [{sniHosts: [other.%[1]s]}]
    route: [{destination: {host: %[1]s, subset: %[3]s}}]
`, vault.host(), one, two))
	}
	m.write("vault.yaml", by("v1", "v2"))
	m.greets(vault, vault.host(), "v1")
	m.greets(vault, "other."+vault.host(), "v2")
	m.write("vault.yaml", by("v2", "v1"))
	m.greets(vault, vault.host(), "v2")
	m.greets(vault, "other."+vault.host(), "v1")
}
