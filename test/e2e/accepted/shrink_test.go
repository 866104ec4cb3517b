package accepted

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// variable matches the parts of a message that differ from mesh to mesh.
var variable = regexp.MustCompile(`'[^']*'|"[^"]*"|[0-9a-f]{16,}|\d+`)

// shrinkTime bounds the time for one failure.
const shrinkTime = 60 * time.Second

// shrink removes parts and fields for as long as a failure of the same kind remains. again loads a mesh and returns its failures.
func shrink(t reporter, parts []*part, kind string, again func([]*part) []failure) []*part {
	end := time.Now().Add(shrinkTime)
	fails := func(parts []*part) bool {
		return time.Now().Before(end) && slices.ContainsFunc(again(parts), func(f failure) bool { return f.kind == kind })
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if less := slices.Delete(slices.Clone(parts), i, i+1); fails(less) {
			parts = less
		}
	}
	for i := range parts {
		for _, path := range paths(parts[i].doc["spec"], []string{"spec"}) {
			doc := clone(parts[i].doc)
			if _, ok := without(doc, path); !ok {
				continue
			}
			p, _ := read(t, doc)
			if p == nil {
				continue
			}
			less := slices.Clone(parts)
			if less[i] = p; fails(less) {
				parts = less
			}
		}
	}
	return parts
}

// paths lists the places in a value, outer ones before inner ones, and the last item of a list first.
func paths(v any, at []string) (list [][]string) {
	add := func(name string, inner any) {
		path := append(slices.Clone(at), name)
		list = append(list, path)
		list = append(list, paths(inner, path)...)
	}
	switch v := v.(type) {
	case tree:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			add(name, v[name])
		}
	case []any:
		for i := len(v) - 1; i >= 0; i-- {
			add(strconv.Itoa(i), v[i])
		}
	}
	return list
}

func clone(doc tree) (out tree) {
	text, _ := json.Marshal(doc) // it was read from such a text
	_ = json.Unmarshal(text, &out)
	return out
}

// show writes parts as YAML.
func show(parts []*part) string {
	var b strings.Builder
	for _, p := range parts {
		text, err := yaml.Marshal(p.doc)
		if err != nil {
			text = fmt.Append(nil, err)
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.String()
}
