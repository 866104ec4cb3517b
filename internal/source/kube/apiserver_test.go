package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pilotmesh/pilot/internal/api"
)

// apiServer is an API server in memory, as a transport of HTTP: it lists and watches objects, and streams lists. It stores
// objects without checks. The only default is the service account of pods. It starts no goroutines.
type apiServer struct {
	mu       sync.Mutex
	revision int
	objects  map[string]map[string]*unstructured.Unstructured // by resource and group, then by namespace and name
	watches  map[*events]bool
	kinds    map[string]string // by resource and group
	refused  map[string]bool   // the resources that the account may not list and watch
}

func newAPIServer() *apiServer {
	s := &apiServer{
		objects: map[string]map[string]*unstructured.Unstructured{}, watches: map[*events]bool{},
		refused: map[string]bool{},
		kinds:   map[string]string{"configmaps.": "ConfigMap", "nodes.": "Node", "services.": "Service", "pods.": "Pod", "endpointslices.discovery.k8s.io": "EndpointSlice"},
	}
	for _, k := range api.Kinds() {
		of := resourceOf(schema.GroupKind{Group: k.Group(), Kind: k.Name})
		s.kinds[of] = k.Name
		definition := &unstructured.Unstructured{}
		definition.SetAPIVersion("apiextensions.k8s.io/v1")
		definition.SetKind("CustomResourceDefinition")
		definition.SetName(of)
		s.put(definition)
	}
	return s
}

// resourceOf is the name of the resource of a kind, and the group.
func resourceOf(k schema.GroupKind) string {
	return api.Kind{Name: k.Kind}.Plural() + "." + k.Group
}

// put creates or replaces an object.
func (s *apiServer) put(o *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := resourceOf(o.GroupVersionKind().GroupKind())
	if _, given, _ := unstructured.NestedString(o.Object, "spec", "serviceAccountName"); o.GetKind() == "Pod" && !given {
		if err := unstructured.SetNestedField(o.Object, "default", "spec", "serviceAccountName"); err != nil {
			panic(err)
		}
	}
	kind := "ADDED"
	if s.objects[of] == nil {
		s.objects[of] = map[string]*unstructured.Unstructured{}
	}
	if s.objects[of][nameOf(o)] != nil {
		kind = "MODIFIED"
	}
	s.objects[of][nameOf(o)] = o
	s.announce(kind, of, o)
}

// again announces an object once more, as to a client that connects to an API server with stale data.
func (s *apiServer) again(event string, o *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announce(event, resourceOf(o.GroupVersionKind().GroupKind()), o)
}

// remove deletes an object by kind, namespace and name, and returns it; nil if it was not there.
func (s *apiServer) remove(kind, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, all := range s.objects {
		if o := all[name]; o != nil && o.GetKind() == kind {
			delete(all, name)
			s.announce("DELETED", of, o)
			return o
		}
	}
	return nil
}

func nameOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// announce gives an object a new version and sends it to the watches of its resource.
func (s *apiServer) announce(kind, of string, o *unstructured.Unstructured) {
	s.revision++
	o.SetResourceVersion(strconv.Itoa(s.revision))
	for w := range s.watches {
		if w.of == of && w.wants(o) {
			w.send(kind, o)
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if r.URL.Path == "/version" {
		return answer(io.NopCloser(strings.NewReader(`{"major": "1", "minor": "36"}`))), nil
	}
	group, version, name := "", parts[1], parts[2]
	if parts[0] == "apis" {
		group, version, name = parts[1], parts[1]+"/"+parts[2], parts[3]
	}
	if i := slices.Index(parts, "namespaces"); i >= 0 && len(parts) > i+2 {
		name = parts[i+2]
	}
	e := &events{
		server: s, ctx: r.Context(), of: name + "." + group, version: version,
		partial: strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"), chunks: make(chan []byte, 1000),
	}
	query := r.URL.Query()
	e.only, _ = strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	if e.only == query.Get("fieldSelector") {
		e.only = ""
	}
	if s.refused[e.of] {
		return forbidden(e.of), nil
	}
	if query.Get("watch") == "" {
		return answer(io.NopCloser(bytes.NewReader(s.list(e)))), nil
	}
	s.watches[e] = true
	if query.Get("sendInitialEvents") == "true" {
		for _, o := range sorted(s.objects[e.of]) {
			if e.wants(o) {
				e.send("ADDED", o)
			}
		}
		e.end(s.revision)
	}
	return answer(e), nil
}

func sorted(all map[string]*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

func answer(body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Body: body, ContentLength: -1, Header: http.Header{"Content-Type": {"application/json"}}, ProtoMajor: 1, ProtoMinor: 1}
}

// list is the list of a resource.
func (s *apiServer) list(e *events) []byte {
	items := []any{}
	for _, o := range sorted(s.objects[e.of]) {
		if e.wants(o) {
			items = append(items, e.shape(o))
		}
	}
	list := map[string]any{"kind": s.kinds[e.of] + "List", "apiVersion": e.version, "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.revision)}, "items": items}
	if e.partial {
		list["kind"], list["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	return encode(list)
}

// events is the body of a watch. Reading blocks until there is an event or the request is cancelled.
type events struct {
	server  *apiServer
	ctx     context.Context
	of      string
	version string // in which objects are sent
	partial bool   // only the metadata is sent
	only    string // the name of the object that is watched; empty for all
	chunks  chan []byte
	rest    []byte
}

func (e *events) wants(o *unstructured.Unstructured) bool {
	return e.only == "" || o.GetName() == e.only
}

// allow lets the account list and watch a resource, or withdraws that and ends the watches.
func (s *apiServer) allow(of string, allowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[of] = !allowed
	for w := range s.watches {
		if w.of == of && !allowed {
			close(w.chunks)
			delete(s.watches, w)
		}
	}
}

func forbidden(of string) *http.Response {
	out := answer(io.NopCloser(bytes.NewReader(encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": http.StatusForbidden, "message": of + " is forbidden",
	}))))
	out.StatusCode = http.StatusForbidden
	return out
}

// shape is an object as the client wants it.
func (e *events) shape(o *unstructured.Unstructured) map[string]any {
	out := maps.Clone(o.Object)
	out["apiVersion"] = e.version
	if e.partial {
		return map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": out["metadata"]}
	}
	return out
}

func (e *events) send(kind string, o *unstructured.Unstructured) {
	e.chunks <- encode(map[string]any{"type": kind, "object": e.shape(o)})
}

// end says that all objects of a streamed list were sent.
func (e *events) end(revision int) {
	mark := &unstructured.Unstructured{Object: map[string]any{}}
	mark.SetKind(e.server.kinds[e.of])
	mark.SetResourceVersion(strconv.Itoa(revision))
	mark.SetAnnotations(map[string]string{"k8s.io/initial-events-end": "true"})
	e.send("BOOKMARK", mark)
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		select {
		case chunk, ok := <-e.chunks:
			if !ok {
				return 0, io.EOF
			}
			e.rest = chunk
		case <-e.ctx.Done():
			return 0, e.ctx.Err()
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (e *events) Close() error {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	delete(e.server.watches, e)
	return nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("an object of a test cannot be encoded: %v", err))
	}
	return append(b, '\n')
}
