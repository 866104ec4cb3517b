package tree

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// Patch returns the JSON patch that makes after from before. It names the smallest parts that differ, and changes entries of lists with names
// in place: so fields that this version of the program does not know stay in the pod to which the patch is applied.
func Patch(before, after *corev1.Pod) ([]byte, error) {
	b, err := Of(before)
	if err != nil {
		return nil, err
	}
	a, err := Of(after)
	if err != nil {
		return nil, err
	}
	p := patcher{steps: []operation{}}
	p.object("", b, a)
	return json.Marshal(p.steps)
}

// patcher collects the steps of a patch.
type patcher struct{ steps []operation }

func (p *patcher) add(op, path string, value any) {
	p.steps = append(p.steps, operation{Op: op, Path: path, Value: value})
}

func (p *patcher) object(path string, before, after map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[k]; !stays {
			p.add("remove", path+"/"+escape(k), nil)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(after)) {
		at := path + "/" + escape(k)
		if old, had := before[k]; had {
			p.value(at, old, after[k])
		} else {
			p.add("add", at, after[k])
		}
	}
}

func (p *patcher) value(path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch after := after.(type) {
	case map[string]any:
		b, ok := before.(map[string]any)
		switch {
		case ok && len(b) == 0: // the encoder writes empty objects, which the pod itself need not have
			p.add("add", path, after)
			return
		case ok:
			p.object(path, b, after)
			return
		}
	case []any:
		b, ok := before.([]any)
		if from, to := names(b), names(after); ok && from != nil && to != nil {
			p.named(path, b, after, from, to)
			return
		}
	}
	p.add("replace", path, after)
}

// named changes a list whose entries have names: each place in turn gets its entry, which may come from a later place.
func (p *patcher) named(path string, before, after []any, from, to []string) {
	before, from = slices.Clone(before), slices.Clone(from)
	for i, name := range to {
		place := path + "/" + strconv.Itoa(i)
		at := i
		if i >= len(from) || from[i] != name {
			at = slices.Index(from, name)
		}
		switch {
		case at < 0:
			p.add("add", place, after[i])
			before, from = slices.Insert(before, i, after[i]), slices.Insert(from, i, name)
			continue
		case at != i:
			p.steps = append(p.steps, operation{Op: "move", Path: place, From: path + "/" + strconv.Itoa(at)})
			entry := before[at]
			before, from = slices.Insert(slices.Delete(before, at, at+1), i, entry), slices.Insert(slices.Delete(from, at, at+1), i, name)
		}
		p.value(place, before[i], after[i])
	}
	for i := len(from) - 1; i >= len(to); i-- {
		p.add("remove", path+"/"+strconv.Itoa(i), nil)
	}
}

// names returns the names of the entries of a list; nil if it has entries without a name, or with the same one.
func names(list []any) []string {
	out := make([]string, 0, len(list))
	seen := make(map[string]bool, len(list))
	for _, entry := range list {
		m, _ := entry.(map[string]any)
		name, _ := m["name"].(string)
		if name == "" || seen[name] {
			return nil
		}
		seen[name] = true
		out = append(out, name)
	}
	return out
}

func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
