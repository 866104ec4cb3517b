package protocol

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/xds/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// appliedURL is the type of requests by which agents report what their Envoy has received and does not use yet. The names of the
// request are all such resources, as URL/NAME, where URL is the type URL of the resource, and URL/* for further ones of a type. Nothing
// is sent for this type.
const appliedURL = "type.googleapis.com/pilot.v1.Applied"

// Warming are the resources of one type that an Envoy has received and does not use yet. It uses the earlier versions, if it has any.
type Warming struct {
	Type resource.Type
	// Names are at most maxListed, in order.
	Names []string
	// More is set if there are others.
	More bool
}

// warming reads a report of an agent. It ignores what it does not understand, because agents may be newer.
func warming(q *Request) (all []Warming) {
	var types [resource.Types]Warming
	for name := range q.Subscribed() {
		t, resource, ok := typed(string(name))
		switch w := &types[t]; {
		case !ok:
		case resource == star || len(w.Names) == maxListed || len(resource) > maxWantName:
			w.More = true
		default:
			w.Names = append(w.Names, resource)
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

// typed splits a name of a report into the type, which is one of class states, and the name of the resource.
func typed(text string) (t resource.Type, name string, ok bool) {
	host, rest, _ := strings.Cut(text, "/")
	message, name, ok := strings.Cut(rest, "/")
	t, known := resource.ParseType(host + "/" + message)
	if !ok || !known || t.PerProxy() || name == "" {
		return 0, "", false
	}
	return t, name, true
}

// report processes a request that is a report of an agent; false if it is none.
func report(q *Request, out []Action) ([]Action, bool) {
	switch string(q.URL) {
	case healthURL:
		return append(out, Action{Kind: Health, Healthy: !q.Rejected, Text: request.StatusText(q.Detail, maxReason)}), true
	case appliedURL:
		return append(out, Action{Kind: Applied, Warming: warming(q)}), true
	}
	return out, false
}

// isReport reports whether a request is a report of an agent.
func isReport(q *Request) bool { return string(q.URL) == healthURL || string(q.URL) == appliedURL }
