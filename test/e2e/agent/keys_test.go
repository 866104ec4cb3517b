package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/pki"
	"github.com/pilotmesh/pilot/test/testbed"
)

// issued is a workload whose callers need tokens, and the service that has the keys.
const issued = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [%[1]s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[2]d, name: main, protocol: HTTP}]
  endpoints: [{address: 127.1.0.2, ports: {main: %[3]d}, labels: {app: web}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: keys, namespace: shop}
spec:
  hosts: [keys.test]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: %[4]d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec:
  jwtRules: [{issuer: me, jwksUri: "http://keys.test:%[4]d/keys", presence: REQUIRED}]
`

// TestEnvoyFetchesKeys: with PILOT_JWT_ENABLE_REMOTE_JWKS=envoy it is Envoy that fetches the keys of tokens, from a service of the mesh.
func TestEnvoyFetchesKeys(t *testing.T) {
	b := newBed(t)
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	var fetched, others atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Envoy-Internal") == "" && r.Header.Get("X-Envoy-Expected-Rq-Timeout-Ms") == "" {
			others.Add(1) // not by Envoy
		}
		fetched.Add(1)
		fmt.Fprint(w, keys.JWKS())
	}))
	t.Cleanup(server.Close)
	if _, err := b.Write("web.yaml", fmt.Sprintf(issued, webHost, b.port, b.backend.port, server.Listener.Addr().(*net.TCPAddr).Port)); err != nil {
		t.Fatal(err)
	}
	b.Env = []string{"PILOT_JWT_ENABLE_REMOTE_JWKS=envoy"}
	b.serve()
	b.ready(options(), testbed.Node{Name: "web", IP: "127.1.0.2"})
	address := "http://" + net.JoinHostPort("127.1.0.2", strconv.Itoa(b.backend.port)) + "/"
	call := func(ctx context.Context, key string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return 0, err
		}
		if key != "none" {
			token, err := keys.Token(&casefile.JWT{Iss: "me", Sub: "you", Key: key})
			if err != nil {
				return 0, err
			}
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := b.client.Do(r)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	b.await("a token to be accepted", func(ctx context.Context) error {
		if status, err := call(ctx, ""); err != nil || status != http.StatusOK {
			return errors.Join(err, fmt.Errorf("status %d", status))
		}
		return nil
	})
	for _, key := range []string{"other", "none"} {
		if status, err := call(t.Context(), key); err != nil || status != http.StatusUnauthorized {
			t.Errorf("a token of the key %q: %d, %v; want 401", key, status, err)
		}
	}
	if fetched.Load() == 0 || others.Load() > 0 {
		t.Errorf("the keys were fetched %d times, %d times not by Envoy", fetched.Load(), others.Load())
	}
}
