package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestEgressSockets: connections to the socket of an egress listener reach the only port of its service, or the port that a rule names, and in TLS the
// service with the name that the client asks for.
func TestEgressSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "sock-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plain, secret := filepath.Join(dir, "plain"), filepath.Join(dir, "secret")
	store, vault, safe := greeters(t, "store", "TCP"), greeters(t, "vault", "TLS"), greeters(t, "safe", "TLS")
	sidecar := fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: sockets, namespace: shop}
spec:
  egress:
  - {port: {number: 0, protocol: TCP, name: plain}, bind: "unix://%s", hosts: [./%s]}
  - {port: {number: 0, protocol: TLS, name: secret}, bind: "unix://%s", hosts: [./%s, ./%s]}
`, plain, store.host(), secret, vault.host(), safe.host())
	services := store.entry() + store.subsets() + vault.version(1).entry() + safe.version(2).entry()
	b := newBed(t, "all.yaml", services+sidecar, "store.yaml", store.rules("tcp", fmt.Sprintf("  - route: [{destination: {host: %s, subset: v2}}]\n", store.host())))
	b.envoy(testbed.Node{Name: "client", Namespace: "shop"})
	greets := func(path, serverName, want string) {
		t.Helper()
		b.await(want+" to greet at "+path, func(ctx context.Context) error {
			got, err := testbed.GreetingAt(ctx, "unix", path, serverName)
			if err == nil && got != want {
				err = fmt.Errorf("%s greets", got)
			}
			return err
		})
	}
	greets(plain, "", "v2")
	greets(secret, vault.host(), "v1")
	greets(secret, safe.host(), "v2")
	b.write("store.yaml", store.rules("tcp", fmt.Sprintf("  - route: [{destination: {host: %s, subset: v1}}]\n", store.host())))
	greets(plain, "", "v1")
}
