package agent

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/pilotmesh/pilot/test/testbed"
)

// leb is a number as WebAssembly writes it. All of ours need one or two bytes.
func leb(n int) []byte {
	if n < 0x80 {
		return []byte{byte(n)}
	}
	return []byte{byte(n) | 0x80, byte(n >> 7)}
}

// counted is a vector of n parts.
func counted(n int, parts string) string { return string(leb(n)) + parts }

func text(s string) string { return counted(len(s), s) }

// wasmModule is a module of the proxy-wasm ABI that adds the header x-wasm with a value of four letters to each response. As text:
//
//	(import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
//	(func (export "proxy_abi_version_0_2_1"))
//	(func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 4096))
//	(func (export "proxy_on_context_create") (param i32 i32))
//	(func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
//	(func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const 1))
//	(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
//	  (drop (call $add (i32.const 2) (i32.const 0) (i32.const 6) (i32.const 16) (i32.const 4))) (i32.const 0))
//	(memory (export "memory") 1) (data (i32.const 0) "x-wasm") (data (i32.const 16) "here")
func wasmModule(value string) []byte {
	const i32, end = "\x7f", "\x0b"
	section := func(id byte, content string) string { return string([]byte{id}) + text(content) }
	function := func(params, results int) string {
		return "\x60" + counted(params, strings.Repeat(i32, params)) + counted(results, strings.Repeat(i32, results))
	}
	body := func(code string) string { return text("\x00" + code + end) }
	export := func(name string, kind, index byte) string { return text(name) + string([]byte{kind, index}) }
	data := func(at byte, s string) string { return "\x00\x41" + string([]byte{at}) + end + text(s) }
	exports := export("proxy_abi_version_0_2_1", 0, 1) + export("proxy_on_memory_allocate", 0, 2) + export("proxy_on_context_create", 0, 3) +
		export("proxy_on_vm_start", 0, 4) + export("proxy_on_configure", 0, 5) + export("proxy_on_response_headers", 0, 6) + export("memory", 2, 0)
	code := body("") + body("\x41\x80\x20") + body("") + body("\x41\x01") + body("\x41\x01") +
		body("\x41\x02\x41\x00\x41\x06\x41\x10\x41\x04\x10\x00\x1a\x41\x00")
	return []byte("\x00asm\x01\x00\x00\x00" +
		section(1, counted(6, function(5, 1)+function(0, 0)+function(1, 1)+function(2, 0)+function(2, 1)+function(3, 1))) +
		section(2, counted(1, text("env")+text("proxy_add_header_map_value")+"\x00\x00")) +
		section(3, counted(6, "\x01\x02\x03\x04\x04\x05")) +
		section(5, counted(1, "\x00\x01")) +
		section(7, counted(7, exports)) +
		section(10, counted(6, code)) +
		section(11, counted(2, data(0, "x-wasm")+data(16, value))))
}

// password is the registry's password. It must be nowhere but in the control plane's responses.
const password = "hidden-password"

// store is a registry of images, which wants a password.
type store struct {
	*httptest.Server
	t     *testing.T
	host  string
	pulls atomic.Int64
}

func newStore(t *testing.T) *store {
	s := &store{t: t}
	images := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, got, _ := q.BasicAuth(); user != "me" || got != password {
			w.Header().Set("Www-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/blobs/") {
			s.pulls.Add(1)
		}
		images.ServeHTTP(w, q)
	}))
	t.Cleanup(s.Close)
	s.host = strings.TrimPrefix(s.URL, "http://")
	return s
}

// push makes a module available, as an image that Docker could have built.
func (s *store) push(tag, value string) {
	s.t.Helper()
	var layer bytes.Buffer
	z := gzip.NewWriter(&layer)
	a := tar.NewWriter(z)
	module := wasmModule(value)
	err := a.WriteHeader(&tar.Header{Name: "plugin.wasm", Size: int64(len(module)), Mode: 0o644, Typeflag: tar.TypeReg})
	if err == nil {
		_, err = a.Write(module)
	}
	if err = errors.Join(err, a.Close(), z.Close()); err != nil {
		s.t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.DockerLayer))
	if err != nil {
		s.t.Fatal(err)
	}
	to, err := name.ParseReference(s.host+"/plugin:"+tag, name.Insecure)
	if err == nil {
		err = remote.Write(to, image, remote.WithAuth(&authn.Basic{Username: "me", Password: password}), remote.WithContext(s.t.Context()))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

const (
	listenerType  = "type.googleapis.com/envoy.config.listener.v3.Listener"
	extensionType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	wasmType      = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"
)

// wasmBed is an agent whose Envoy has one listener with one Wasm filter, which is sent by itself.
type wasmBed struct {
	*testing.T
	control *handmade
	images  *store
	port    int
	node    testbed.Node
	options testbed.AgentOptions
	dir     string
	*testbed.Agent
	client *http.Client
}

func newWasmBed(t *testing.T, sotw bool) *wasmBed {
	t.Helper()
	t.Parallel()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	w := &wasmBed{T: t, control: newHandmade(t), images: newStore(t), port: ports[0], options: options(), dir: t.TempDir(), client: testbed.NewClient()}
	t.Cleanup(w.client.CloseIdleConnections)
	w.options.Env = []string{"WASM_INSECURE_REGISTRIES=" + w.images.host, "WASM_HTTP_REQUEST_MAX_RETRIES=0"}
	w.node = testbed.Node{Name: "app", Namespace: "shop", SotW: sotw, Discovery: w.control.address}
	w.control.set(listenerType, "web", fmt.Sprintf(`{"@type": %q, "name": "web", "address": {"socketAddress": {"address": "127.0.0.1", "portValue": %d}},
		"filterChains": [{"filters": [{"name": "http", "typedConfig": {
			"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "statPrefix": "web",
			"routeConfig": {"virtualHosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "directResponse": {"status": 200}}]}]},
			"httpFilters": [
				{"name": "plugin", "configDiscovery": {"configSource": {"ads": {}, "resourceApiVersion": "V3", "initialFetchTimeout": "0s"},
					"typeUrls": [%q, "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"]}},
				{"name": "router", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}`,
		listenerType, w.port, wasmType))
	return w
}

// plugin sends the filter, whose module is an image with a tag.
func (w *wasmBed) plugin(tag, policy string) {
	w.Helper()
	secret := fmt.Sprintf(`{"auths":{%q:{"username":"me","password":%q}}}`, w.images.host, password)
	w.control.set(extensionType, "plugin", fmt.Sprintf(`{"@type": %q, "name": "plugin", "typedConfig": {"@type": %q, "config": {
		"name": "p", "rootId": "r", "failurePolicy": %q, "vmConfig": {"runtime": "envoy.wasm.runtime.v8", "vmId": %q,
		"code": {"remote": {"sha256": "nil", "httpUri": {"uri": "oci://%s/plugin:%s", "cluster": "_", "timeout": "30s"}}},
		"environmentVariables": {"keyValues": {"ISTIO_META_WASM_IMAGE_PULL_SECRET": %q}}}}}}`, extensionType, wasmType, policy, tag, w.images.host, tag, secret))
}

// start starts the agent.
func (w *wasmBed) start() {
	w.Helper()
	a, err := testbed.StartAgent(w.options, w.dir, w.node)
	if err != nil {
		w.Fatal(err)
	}
	w.Agent = a
	w.Cleanup(func() {
		a.Stop()
		if w.Failed() {
			w.Logf("the log of the agent ends:\n%s", a.Log())
		}
	})
}

// answers waits for an answer with a status, and a value of the header that the module adds.
func (w *wasmBed) answers(status int, value string) {
	w.Helper()
	w.await(fmt.Sprintf("an answer with status %d and x-wasm: %q", status, value), func(ctx context.Context) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(w.port)+"/", nil)
		if err != nil {
			return err
		}
		a, err := w.client.Do(q)
		if err != nil {
			return err
		}
		if got := a.Header.Get("X-Wasm"); a.StatusCode != status || got != value {
			err = fmt.Errorf("status %d, x-wasm: %q", a.StatusCode, got)
		}
		return cmp.Or(err, a.Body.Close())
	})
}

// refused waits until the control plane has heard of a reason.
func (w *wasmBed) refused(part string) {
	w.Helper()
	w.await("a NACK that says "+part, func(context.Context) error {
		if !w.control.saysWhy(part) {
			return errors.New("there is none")
		}
		return nil
	})
}

func (w *wasmBed) await(what string, check func(context.Context) error) {
	w.Helper()
	(&bed{T: w.T}).await(what, check)
}

// TestWasm: a filter's module comes from a registry that wants a password, and requests pass it. The password stays with the agent. Without the
// control plane and the registry, agent and Envoy start again with the module. A version that is not there leaves the last one in force.
func TestWasm(t *testing.T) {
	for _, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			w := newWasmBed(t, node.SotW)
			w.images.push("1", "here")
			w.plugin("1", "FAIL_CLOSED")
			w.start()
			w.answers(http.StatusOK, "here")
			dump, err := w.Admin(t.Context(), "/config_dump")
			if err != nil || !strings.Contains(dump, filepath.Join(w.Dir(), "wasm")) || strings.Contains(dump, password) {
				t.Errorf("the configuration of Envoy names no file, or has the password: %v", err)
			}
			w.await("the last known good configuration", func(context.Context) error {
				kept, err := os.ReadFile(filepath.Join(w.Dir(), "last-known-good"))
				if err == nil && (!bytes.Contains(kept, []byte(wasmType)) || bytes.Contains(kept, []byte(password))) {
					err = errors.New("it lacks the filter, or has the password")
				}
				return err
			})
			w.control.server.Stop()
			w.images.Config.Handler = http.NotFoundHandler()
			w.End(syscall.SIGTERM)
			w.start()
			w.answers(http.StatusOK, "here")
			w.control.start()
			w.plugin("2", "FAIL_CLOSED")
			w.refused("plugin: the Wasm module oci://" + w.images.host + "/plugin:2 cannot be used: ")
			w.answers(http.StatusOK, "here")
			if log, err := w.WholeLog(); err != nil || strings.Contains(log, password) {
				t.Errorf("the password is in the log, or %v", err)
			}
		})
	}
}

// TestWasmMissing: without its module, a filter lets everything pass or nothing, as it says. Once the module is available, it is used.
func TestWasmMissing(t *testing.T) {
	for policy, status := range map[string]int{"FAIL_OPEN": http.StatusOK, "FAIL_CLOSED": http.StatusForbidden} {
		t.Run(policy, func(t *testing.T) {
			w := newWasmBed(t, false)
			w.plugin("1", policy)
			w.start()
			w.answers(status, "")
			w.refused("status 404")
			w.images.push("1", "late")
			w.answers(http.StatusOK, "late")
			if page, err := w.Status(t.Context(), "/metrics"); err != nil || !strings.Contains(page, `istio_agent_wasm_remote_fetch_count{result="success"} 1`) {
				t.Errorf("the metrics do not tell: %v", err)
			}
		})
	}
}
