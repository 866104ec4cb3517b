package request

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// AppliedURL is the type of requests by which agents report what their Envoy has received and does not use yet. The names of such a
// request are all these resources, as URL/NAME, where URL is the type URL of the resource, and URL/* for further ones of a type. Nothing
// is sent for this type. A further name, drainingPrefix and two numbers with a "/" between them, says how many filter chains of listeners their
// Envoy drains, and how many connections are open.
const AppliedURL = "type.googleapis.com/pilot.v1.Applied"

const drainingPrefix = "type.googleapis.com/pilot.v1.Draining/"

const (
	// maxWarming is the largest number of resources of one type that a report names, and maxWarmingName the largest length of a name.
	maxWarming     = 20
	maxWarmingName = 1024
)

// Warming are the resources of one type that an Envoy has received and does not use yet. It uses the earlier versions, if it has any.
type Warming struct {
	Type resource.Type
	// Names are in order.
	Names []string
	// More is set if there are others.
	More bool
}

// Draining counts what an Envoy drains: connections that were opened before a listener was changed use its former version.
type Draining struct {
	// FilterChains are how many filter chains and listeners drain; 0 if none does.
	FilterChains uint32
	// Connections are how many connections may be among theirs.
	Connections uint32
}

// Draining reads what a report of an agent says of that.
func (q *Request) Draining() (d Draining) {
	for text := range q.Subscribed() {
		rest, ok := strings.CutPrefix(string(text), drainingPrefix)
		if !ok {
			continue
		}
		chains, connections, _ := strings.Cut(rest, "/")
		n, err := strconv.ParseUint(chains, 10, 32)
		if err != nil || n == 0 {
			continue
		}
		m, err := strconv.ParseUint(connections, 10, 32)
		if err == nil {
			d = Draining{uint32(n), uint32(m)}
		}
	}
	return d
}

// Warming reads a report of an agent. It ignores names that it does not understand, because agents may be newer.
func (q *Request) Warming() (all []Warming) {
	var types [resource.Types]Warming
	for text := range q.Subscribed() {
		t, name, ok := typed(string(text))
		if !ok {
			continue
		}
		if w := &types[t]; name == "*" || len(w.Names) == maxWarming || len(name) > maxWarmingName {
			w.More = true
		} else {
			w.Names = append(w.Names, name)
		}
	}
	for i, w := range types {
		if len(w.Names) == 0 && !w.More {
			continue
		}
		slices.Sort(w.Names)
		w.Type, w.Names = resource.Type(i), slices.Compact(w.Names)
		all = append(all, w)
	}
	return all
}

// typed splits a name of a report into a type of class states and the name of a resource.
func typed(text string) (t resource.Type, name string, ok bool) {
	host, rest, _ := strings.Cut(text, "/")
	message, name, _ := strings.Cut(rest, "/")
	t, ok = resource.ParseType(host + "/" + message)
	return t, name, ok && t < resource.Types && name != ""
}
