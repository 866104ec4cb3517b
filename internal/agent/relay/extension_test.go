package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pilotmesh/pilot/internal/agent/extension"
	"github.com/pilotmesh/pilot/internal/agent/wasm"
)

// modules are the modules that a test has made available, by their URLs.
type modules struct {
	mu    sync.Mutex
	paths map[string]string
	// asked, if it is set, receives the URL of each available module before it is returned.
	asked chan string
}

func (m *modules) set(url, path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.paths == nil {
		m.paths = map[string]string{}
	}
	m.paths[url] = path
}

// Get implements Modules. A module whose URL begins with slow is being fetched for ever.
func (m *modules) Get(ctx context.Context, of wasm.Module) (string, error) {
	m.mu.Lock()
	path, asked := m.paths[of.URL], m.asked
	m.mu.Unlock()
	if path != "" && asked != nil {
		asked <- of.URL
		asked <- of.URL
	}
	if path == "" && strings.HasPrefix(of.URL, "slow") {
		<-ctx.Done()
	}
	if path == "" {
		return "", errors.New(of.URL + " is missing")
	}
	return path, nil
}

// Holds implements Modules.
func (*modules) Holds(path string) bool { return path != "/gone" }

// filters are Wasm filters from words such as a@1=url, or a@1=url! for one that fails open.
func filters(t *testing.T, words string) (list []*discoveryv3.Resource) {
	t.Helper()
	for _, word := range strings.Fields(words) {
		name, rest, _ := strings.Cut(word, "@")
		version, url, _ := strings.Cut(rest, "=")
		url, open := strings.CutSuffix(url, "!")
		policy := wasmv3.FailurePolicy_FAIL_CLOSED
		if open {
			policy = wasmv3.FailurePolicy_FAIL_OPEN
		}
		config, err := anypb.New(&httpwasmv3.Wasm{Config: &wasmv3.PluginConfig{FailurePolicy: policy, Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
			Code: &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{
				HttpUri: &corev3.HttpUri{Uri: url, Timeout: durationpb.New(time.Second)},
			}}},
			EnvironmentVariables: &wasmv3.EnvironmentVariables{KeyValues: map[string]string{"ISTIO_META_WASM_IMAGE_PULL_SECRET": "hidden"}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		body, err := anypb.New(&corev3.TypedExtensionConfig{Name: name, TypedConfig: config})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &discoveryv3.Resource{Name: name, Version: version, Resource: body})
	}
	return list
}

// reads are the extensions that Envoy gets, as words such as a@1=file, or a@1=RBAC[] for a stand-in filter.
func reads(t *testing.T, list []*discoveryv3.Resource) string {
	t.Helper()
	words := make([]string, 0, len(list))
	for _, r := range list {
		if strings.Contains(r.String(), "hidden") {
			t.Errorf("a secret: %v", r)
		}
		of := extension.File(r.GetResource())
		if of == "" {
			var whole corev3.TypedExtensionConfig
			if err := r.GetResource().UnmarshalTo(&whole); err != nil {
				t.Fatal(err)
			}
			kind := whole.GetTypedConfig().GetTypeUrl()
			of = fmt.Sprintf("%s[%s]", kind[strings.LastIndex(kind, ".")+1:], whole.GetTypedConfig().GetValue())
		}
		words = append(words, r.GetName()+"@"+r.GetVersion()+"="+of)
	}
	return strings.Join(words, " ")
}

// stays are the extensions in the store.
func (p *place) stays() string { p.Helper(); return reads(p.T, p.store.All(extension.URL)) }

// conversation is a stream with delta xDS about extensions.
type conversation struct {
	*place
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (p *place) converse() *conversation {
	p.Helper()
	c := &conversation{p, p.connect()}
	p.must(c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: extension.URL, ResourceNamesSubscribe: []string{"a", "b", "c"}}))
	take(p, p.deltas)
	return c
}

// gets checks the next response to Envoy, and returns the nonce.
func (c *conversation) gets(want string) string {
	c.Helper()
	a, err := c.stream.Recv()
	c.must(err)
	if got := reads(c.T, a.GetResources()); got != want || a.GetTypeUrl() != extension.URL {
		c.Errorf("Envoy gets %s, want %s", got, want)
	}
	return a.GetNonce()
}

// acknowledges checks what the control plane receives when Envoy acknowledges a response.
func (c *conversation) acknowledges(nonce, wantNonce, wantError string) {
	c.Helper()
	c.must(c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: extension.URL, ResponseNonce: nonce}))
	q := take(c.place, c.deltas)
	if got := q.GetErrorDetail().GetMessage(); q.GetResponseNonce() != wantNonce || got != wantError {
		c.Errorf("nonce %q, error %q; want %q, %q", q.GetResponseNonce(), got, wantNonce, wantError)
	}
}

// TestModules: Envoy gets files. A filter without its module is replaced by a stand-in, or stays as it was, and the control plane receives
// the reason. When the module is available, Envoy gets the filter, and the control plane learns that, too.
func TestModules(t *testing.T) {
	p := newPlace(t)
	p.modules.set("one", "/1")
	c := p.converse()
	send := func(nonce, words string, removed ...string) {
		p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extension.URL, Nonce: nonce, Resources: filters(t, words), RemovedResources: removed}
	}
	send("1", "a@1=one b@1=two c@1=two!")
	nonce := c.gets("a@1=/1 b@1+unfetched=RBAC[\n\x00] c@1+unfetched=RBAC[]")
	c.acknowledges(nonce, "1", "b: two is missing; c: two is missing")
	if got := p.stays(); got != "a@1=/1" {
		t.Errorf("kept: %s", got)
	}
	send("2", "a@2=three")
	c.acknowledges(c.gets(""), "2", "a: three is missing")
	p.modules.set("two", "/2")
	first := c.gets("b@1=/2")
	second := c.gets("c@1=/2")
	// Both are in force before Envoy says so of the first.
	c.acknowledges(first, "1", "")
	c.acknowledges(second, "1", "")
	if got := p.stays(); got != "a@1=/1 b@1=/2 c@1=/2" {
		t.Errorf("kept: %s", got)
	}
	p.modules.set("three", "/3")
	c.acknowledges(c.gets("a@2=/3"), "2", "")
	send("2b", "d@1=four")
	p.must(c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: extension.URL, ResponseNonce: c.gets("d@1+unfetched=RBAC[\n\x00]"), ErrorDetail: &rpcstatus.Status{Message: "no RBAC"},
	}))
	if got := take(p, p.deltas).GetErrorDetail().GetMessage(); got != "d: four is missing; Envoy: no RBAC" {
		t.Error(got)
	}
	p.must(c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: extension.URL, ResourceNamesUnsubscribe: []string{"d"}}))
	take(p, p.deltas)
	p.modules.set("four", "/4") // which Envoy does not want any more
	send("3", "", "b")
	c.acknowledges(c.gets(""), "3", "")
	if got := p.stays(); got != "a@2=/3 c@1=/2" {
		t.Errorf("kept: %s", got)
	}
}

// TestUnwantedModule: a filter that Envoy does not want any more when its module comes is not sent.
func TestUnwantedModule(t *testing.T) {
	p := newPlace(t)
	c := p.converse()
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extension.URL, Nonce: "1", Resources: filters(t, "a@1=one")}
	c.acknowledges(c.gets("a@1+unfetched=RBAC[\n\x00]"), "1", "a: one is missing")
	asked := make(chan string)
	p.modules.mu.Lock()
	p.modules.asked, p.modules.paths = asked, map[string]string{"one": "/1"}
	p.modules.mu.Unlock()
	take(p, asked)
	p.must(c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: extension.URL, ResourceNamesUnsubscribe: []string{"a"}}))
	take(p, p.deltas)
	take(p, asked)
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extension.URL, Nonce: "2", RemovedResources: []string{"b"}}
	c.gets("")
}

// TestSlowModule: while a module is fetched, other types flow.
func TestSlowModule(t *testing.T) {
	p := newPlace(t)
	c := p.converse()
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extension.URL, Nonce: "1", Resources: filters(t, "a@1=slow!")}
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: "2", Resources: clusters(t, "x@1")}
	if a, err := c.stream.Recv(); err != nil || a.GetTypeUrl() != clusterURL {
		t.Fatalf("%v, %v", a, err)
	}
	c.acknowledges(c.gets("a@1+unfetched=RBAC[]"), "1", "a: slow is missing")
}

// TestModulesAlone: an Envoy that starts again gets the filters whose modules are available, with a control plane and without.
func TestModulesAlone(t *testing.T) {
	p := newPlace(t)
	p.modules.set("one", "/1")
	p.modules.set("two", "/gone")
	c := p.converse()
	p.answers <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extension.URL, Nonce: "1", Resources: filters(t, "a@1=one b@1=two")}
	c.acknowledges(c.gets("a@1=/1 b@1=/gone"), "1", "")
	p.store.Finish(keptTypes()...)
	s := p.connect()
	p.must(s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: extension.URL, ResourceNamesSubscribe: []string{"a", "b"}}))
	if got := asks(take(p, p.deltas)); got != `subscribe [a b] unsubscribe [] has [a@1] nonce ""` {
		t.Error(got)
	}
	p.control.Stop()
	c.stream = p.connect()
	p.must(c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: extension.URL, ResourceNamesSubscribe: []string{"a", "b"}}))
	c.gets("a@1=/1")
}

// TestWholeModules: the same with State-of-the-World xDS, in whose versions the control plane sees which one was in force last.
func TestWholeModules(t *testing.T) {
	p := newPlace(t)
	p.modules.set("one", "/1")
	s := p.connectWhole()
	send := func(version, nonce string) *discoveryv3.DiscoveryRequest {
		p.must(s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: extension.URL, ResourceNames: []string{"a", "b"}, VersionInfo: version, ResponseNonce: nonce}))
		return take(p, p.wholes)
	}
	control := func(version, words string) {
		a := &discoveryv3.DiscoveryResponse{TypeUrl: extension.URL, VersionInfo: version, Nonce: "n" + version}
		for _, r := range filters(t, words) {
			a.Resources = append(a.Resources, r.GetResource())
		}
		p.answers <- a
	}
	// exchange checks the next response to Envoy, and what the control plane receives when Envoy acknowledges it.
	exchange := func(want, version, nonce, reason string) {
		t.Helper()
		a, err := s.Recv()
		p.must(err)
		u := (&wholeState{}).update(must(proto.Marshal(a)))
		if got := reads(t, u.resources); got != want {
			t.Errorf("Envoy gets %s, want %s", got, want)
		}
		q := send(a.GetVersionInfo(), a.GetNonce())
		if q.GetVersionInfo() != version || q.GetResponseNonce() != nonce || q.GetErrorDetail().GetMessage() != reason {
			t.Errorf("the control plane hears %v", q)
		}
	}
	send("", "")
	control("1", "a@=one")
	exchange("a@1=/1", "1", "n1", "")
	control("2", "a@=two b@=three!")
	exchange("a@2+unfetched=/1 b@2+unfetched=RBAC[]", "1", "n2", "a: two is missing; b: three is missing")
	if q := send("2+unfetched", ""); q.GetVersionInfo() != "1" {
		t.Errorf("the control plane hears %v", q)
	}
	p.modules.set("two", "/2")
	exchange("a@2+unfetched=/2 b@2+unfetched=RBAC[]", "1", "n2", "b: three is missing")
	p.modules.set("three", "/3")
	exchange("a@2=/2 b@2=/3", "2", "n2", "")
	if got := p.stays(); got != "a@2=/2 b@2=/3" {
		t.Errorf("kept: %s", got)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// FuzzUpdate: whatever the control plane sends about extensions, it can be read and written again, or is left alone.
func FuzzUpdate(f *testing.F) {
	var t testing.T
	seed, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: extension.URL, Nonce: "1", Resources: filters(&t, "a@1=one")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		typeOf(data)
		for _, d := range []dialect{&delta{}, &wholeState{}} {
			u := d.update(data)
			if u == nil {
				continue
			}
			for i, r := range u.resources {
				if filter := extension.Read(r.GetResource()); filter != nil {
					body, err := filter.StandIn()
					if err != nil {
						t.Fatal(err)
					}
					u.resources[i] = withBody(r, body, r.GetVersion()+unfetched)
				}
			}
			if b, err := proto.Marshal(d.message(u)); err != nil || typeOf(b) != extension.URL {
				t.Errorf("%q, %v", b, err)
			}
		}
	})
}
