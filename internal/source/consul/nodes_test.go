package consul

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// node is where the instance of a service is.
func (f *fake) node(service string) string {
	if n, ok := f.nodes[service]; ok {
		return n
	}
	return "n"
}

// nodeIn is the node whose services a path asks for, or whose checks.
func nodeIn(path string) string {
	for _, kind := range aspects {
		if name, ok := strings.CutPrefix(path, kind.path); ok {
			return name
		}
	}
	return ""
}

// indexOf is the index of an answer. A real server has none for the services of a node that is gone, which is 1.
func (f *fake) indexOf(path string) uint64 {
	if node := nodeIn(path); strings.HasPrefix(path, onNodePath) {
		for name := range f.services {
			if f.node(name) == node {
				return f.index
			}
		}
		return 1
	}
	return f.index
}

// serveNodes answers queries about nodes and checks.
func (f *fake) serveNodes(w http.ResponseWriter, path string) bool {
	type fields map[string]any
	of := nodeIn(path)
	all := map[string]bool{}
	services, checks := []fields{}, []fields{}
	for name := range f.services {
		node := f.node(name)
		all[node] = true
		if of == "" || of == node {
			services = append(services, fields{"ID": "1", "Service": name, "ModifyIndex": f.modified[name]})
			checks = append(checks, fields{"Node": node, "CheckID": "c", "ServiceName": name, "ModifyIndex": f.checked[name]})
		}
	}
	nodes := []fields{}
	for node := range all {
		nodes = append(nodes, fields{"Node": node})
		if of == "" || of == node {
			checks = append(checks, fields{"Node": node, "CheckID": "serfHealth", "ModifyIndex": f.checked[node]})
		}
	}
	var answer any
	switch {
	case path == nodesPath:
		answer = nodes
	case strings.HasPrefix(path, onNodePath):
		answer = fields{"Services": services}
	case of != "" || path == checksPath:
		answer = checks
	default:
		return false
	}
	_ = json.NewEncoder(w).Encode(answer)
	return true
}

// many are more services than have blocking queries of their own, on so many nodes.
func many(t *testing.T, nodes int) *fake {
	f := newFake(t)
	f.nodes, f.modified, f.checked = map[string]string{}, map[string]uint64{}, map[string]uint64{}
	for i := range maxWatches + 10 {
		name := fmt.Sprintf("svc-%03d", i)
		f.services[name], f.nodes[name] = fmt.Sprintf("10.0.0.%d", i), fmt.Sprintf("node-%d", i%nodes)
	}
	return f
}

// reads returns the requests since the last call: the reads of services, and whether all checks were read.
func (f *fake) reads() (services []string, checks bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.asked {
		if name, ok := strings.CutPrefix(r.URL.Path, "/v1/health/service/"); ok && !r.URL.Query().Has("index") {
			services = append(services, name)
		}
		checks = checks || r.URL.Path == checksPath
	}
	f.asked = nil
	return services, checks
}

// unheard are the parts of a change that were not heard before.
func unheard(told map[string]bool, change string) string {
	var parts []string
	for part := range strings.SplitSeq(strings.TrimPrefix(change, "change "), ", ") {
		if !told[part] {
			parts = append(parts, part)
		}
		told[part] = true
	}
	return strings.Join(parts, ", ")
}

// TestByNodes: of many services on few nodes, the changed ones are read, and no others: by their checks, by themselves, by their node, and on nodes
// that come and go.
func TestByNodes(t *testing.T) {
	f := many(t, 5)
	h := f.follow(nil)
	f.next(h, "")
	if _, checks := f.reads(); checks {
		t.Error("all checks are read")
	}
	told := map[string]bool{}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { f.services["svc-007"], f.checked["svc-007"] = "10.1.0.7", 11 }, "svc-007 10.1.0.7"},
		{func() { f.services["svc-008"], f.modified["svc-008"] = "10.1.0.8", 12 }, "svc-008 10.1.0.8"},
		{func() { f.nodes["svc-009"], f.services["svc-009"], f.modified["svc-009"] = "new", "10.1.0.9", 13 }, "svc-009 10.1.0.9"},
		{func() { f.nodes["svc-009"], f.services["svc-009"], f.modified["svc-009"] = "node-1", "10.2.0.9", 14 }, "svc-009 10.2.0.9"},
		{func() {
			f.services["svc-010"], f.services["svc-015"], f.checked["node-0"] = "10.1.0.10", "10.1.0.15", 15
		}, "svc-010 10.1.0.10, svc-015 10.1.0.15"},
	} {
		f.change(func() { f.index++; step.do() })
		var got string
		for got == "" { // a service that has changed has a query of its own now, which every change of this server answers
			got = unheard(told, f.next(h, ""))
		}
		if got != step.want {
			t.Fatalf("got %q, want %q", got, step.want)
		}
		services, checks := f.reads()
		if node := strings.Contains(step.want, ", "); checks || len(services) > 6 && !node {
			t.Errorf("%s: all checks are read: %v; services are read: %v", step.want, checks, services)
		}
	}
}

// TestManyNodes: services on more nodes are followed by the list of all checks.
func TestManyNodes(t *testing.T) {
	f := many(t, maxNodes+1)
	h := f.follow(nil)
	f.next(h, "")
	f.change(func() { f.index, f.services["svc-007"], f.checked["svc-007"] = 11, "10.1.0.7", 11 })
	if got := f.next(h, ""); got != "change svc-007 10.1.0.7" {
		t.Fatal(got)
	}
	if _, checks := f.reads(); !checks {
		t.Error("not all checks are read")
	}
}
