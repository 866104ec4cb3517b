package configdump

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Difference is a resource that differs between what the control plane wants and what a proxy has.
type Difference struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Result is "missing" if the proxy does not have the resource, "extra" if the control plane does not want it, "differs", or "warming" if the
	// proxy has the wanted content and does not use it yet.
	Result string `json:"result"`
	// Fields are the fields that differ.
	Fields []Field `json:"fields,omitempty"`
}

// Field is a field that differs. Wanted or Has is nil if it is not set there.
type Field struct {
	Path   string `json:"path"`
	Wanted any    `json:"wanted"`
	Has    any    `json:"has"`
}

// Diff compares the resources of a kind. Resources of the bootstrap are not compared, because no control plane sends them.
func Diff(k Kind, wanted, has []Entry) (list []Difference) {
	present, waiting := map[string]Entry{}, map[string]Entry{}
	for _, e := range has {
		switch {
		case e.Static:
		case e.State == active:
			present[e.Name] = e
		case e.State == warming:
			waiting[e.Name] = e
		}
	}
	for _, want := range wanted {
		if want.Static {
			continue
		}
		list = append(list, compare(k, want, present, waiting)...)
		delete(present, want.Name)
		delete(waiting, want.Name)
	}
	if k != Endpoints { // Envoy also lists the endpoints of clusters that find them by DNS
		maps.Copy(present, waiting)
		for _, name := range slices.Sorted(maps.Keys(present)) {
			list = append(list, Difference{Kind: k, Name: name, Result: "extra"})
		}
	}
	return list
}

func compare(k Kind, want Entry, present, waiting map[string]Entry) []Difference {
	d := Difference{Kind: k, Name: want.Name, Result: "differs"}
	have, ok := present[want.Name]
	if next, isWarming := waiting[want.Name]; isWarming {
		d.Fields = fields(k, want, next)
		if len(d.Fields) == 0 {
			d.Result = "warming"
		}
		return []Difference{d}
	}
	if !ok {
		d.Result = "missing"
		return []Difference{d}
	}
	if d.Fields = fields(k, want, have); len(d.Fields) == 0 {
		return nil
	}
	return []Difference{d}
}

// fields returns the fields of a resource that differ.
func fields(k Kind, want, have Entry) (list []Field) {
	a, b := normal(k, want), normal(k, have)
	walk("", a, b, func(f Field) { list = append(list, f) })
	return list
}

// normal returns a resource in a form in which Envoy and the control plane show equal content equally.
func normal(k Kind, e Entry) any {
	switch k {
	case Endpoints:
		// Envoy shows endpoints with all defaults, and not as they were sent.
		all := map[string]any{}
		for _, n := range (Filter{}).endpointsOf(e) {
			all[n.address.String()] = map[string]any{"health_status": n.status, "load_balancing_weight": n.weight, "locality": n.locality, "priority": n.priority}
		}
		return all
	case Routes:
		return whole(e)
	case Clusters, Listeners:
	}
	return e.Body
}

// whole returns a route configuration as if its virtual hosts were no resources of their own (VHDS). As such resources, they have other names in
// Envoy: the name of the route configuration, a slash, and the name with the labels of the host reversed.
func whole(e Entry) map[string]any {
	body := maps.Clone(e.Body)
	if _, split := body["vhds"]; !split {
		return body
	}
	delete(body, "vhds")
	var hosts []any
	for _, host := range objects(body["virtual_hosts"]) {
		if piece, ok := strings.CutPrefix(text(host, "name"), e.Name+"/"); ok {
			host = maps.Clone(host)
			host["name"] = hostOf(piece, words(host["domains"]))
		}
		hosts = append(hosts, host)
	}
	if len(hosts) > 0 {
		body["virtual_hosts"] = hosts
	}
	return body
}

// hostOf returns the name of a virtual host whose name as a resource is piece.
func hostOf(piece string, domains []string) string {
	at := strings.LastIndexByte(piece, ':')
	if at < 0 || slices.Contains(domains, piece[:at]) {
		return piece
	}
	labels := strings.Split(piece[:at], ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + piece[at:]
}

// walk calls found for each field that differs. Elements of lists are matched by their names, if all have some.
func walk(path string, want, have any, found func(Field)) {
	a, b := object(want), object(have)
	if a == nil || b == nil {
		a, b = byName(want), byName(have)
	}
	switch {
	case isHidden(want) || isHidden(have):
		return
	case a != nil && b != nil:
	case object(want) != nil || object(have) != nil || isList(want) || isList(have) || want != have:
		found(Field{path, want, have})
		return
	default:
		return
	}
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		below := path + "." + name
		if isList(want) {
			below = path + "[" + name + "]"
		}
		walk(strings.TrimPrefix(below, "."), a[name], b[name], found)
	}
	// Virtual hosts are found by their domains: their order means nothing.
	if w, h := order(want), order(have); !strings.HasSuffix(path, "virtual_hosts") && len(a) == len(names) && len(b) == len(names) && !slices.Equal(w, h) {
		found(Field{path + " (order)", w, h})
	}
}

// order returns the names of the elements of a list, in order; nil for other values.
func order(v any) (names []string) {
	list, _ := v.([]any)
	for _, one := range list {
		names = append(names, text(object(one), "name"))
	}
	return names
}

func isList(v any) bool {
	_, ok := v.([]any)
	return ok
}

// isHidden reports whether a value is content that Envoy or Read hides.
func isHidden(v any) bool { return v == Redacted || v == redactedBytes }

// byName returns the elements of a list by name, or by position if they have no names. It is nil for other values.
func byName(v any) map[string]any {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	named := map[string]any{}
	for _, one := range list {
		name := text(object(one), "name")
		if name == "" || named[name] != nil {
			named = map[string]any{}
			for i, one := range list {
				named[strconv.Itoa(i)] = one
			}
			return named
		}
		named[name] = one
	}
	return named
}

// WriteDiff writes differences as text.
func WriteDiff(w io.Writer, list []Difference) error {
	var b strings.Builder
	for _, d := range list {
		switch d.Result {
		case "missing":
			fmt.Fprintf(&b, "missing  %s %s: the proxy does not have it\n", d.Kind, d.Name)
		case "extra":
			fmt.Fprintf(&b, "extra    %s %s: the control plane does not want it\n", d.Kind, d.Name)
		case "warming":
			fmt.Fprintf(&b, "warming  %s %s: the proxy has it, and waits for something that it needs\n", d.Kind, d.Name)
		default:
			fmt.Fprintf(&b, "differs  %s %s\n", d.Kind, d.Name)
		}
		for _, f := range d.Fields {
			fmt.Fprintf(&b, "           %s: wanted %s, has %s\n", f.Path, short(f.Wanted), short(f.Has))
		}
	}
	if len(list) == 0 {
		b.WriteString("no differences\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// short returns a value in one line of bounded length.
func short(v any) string {
	if v == nil {
		return "nothing"
	}
	const enough = 200
	body, err := json.Marshal(v)
	if err != nil {
		return "a value that cannot be shown"
	}
	if len(body) > enough {
		return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(string(body[:enough]), ""), len(body))
	}
	return string(body)
}
