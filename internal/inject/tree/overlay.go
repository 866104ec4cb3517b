// Package tree merges and compares parts of pods as JSON objects, lists and scalars, so that fields of later versions of Kubernetes need no code. It is
// pure: it has no goroutines and no state.
package tree

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// AutoImage is the image that users write for a container that gets the image of the mesh.
const AutoImage = "auto"

// Overlay lays the fields that a user wrote for a container over the injected one. Entries of lists with keys, such as variables
// and mounts, replace entries with the same key; a user's probe or hook replaces the handler of the injected one. It works on
// JSON so that fields of later versions of Kubernetes need no code.
func Overlay(base, user corev1.Container) (corev1.Container, error) {
	if user.Image == AutoImage {
		user.Image = ""
	}
	name := base.Name
	b, err := Of(base)
	if err != nil {
		return base, err
	}
	u, err := Of(user)
	if err != nil {
		return base, err
	}
	if user.Image == "" {
		delete(u, "image")
	}
	out := corev1.Container{}
	if err := Into(Merge(b, u), &out); err != nil {
		return base, fmt.Errorf("container %s: %w", name, err)
	}
	out.Name = name
	return out, nil
}

// Merge lays over upon base, which it changes.
func Merge(base, over map[string]any) map[string]any {
	for k, v := range over {
		b, had := base[k]
		switch v := v.(type) {
		case map[string]any:
			b, isMap := b.(map[string]any)
			switch {
			case !isMap, k == "preStop", k == "postStart":
				base[k] = v
			default:
				dropOtherHandlers(b, v)
				base[k] = Merge(b, v)
			}
		case []any:
			b, isList := b.([]any)
			if key := listKeys(k); had && isList && key != nil {
				base[k] = mergeLists(b, v, key)
			} else {
				base[k] = v
			}
		default:
			base[k] = v
		}
	}
	return base
}

// dropOtherHandlers removes from a probe the handlers that the user's probe replaces by one of another kind.
func dropOtherHandlers(base, over map[string]any) {
	handlers := []string{"exec", "httpGet", "tcpSocket", "grpc"}
	if !slices.ContainsFunc(handlers, func(h string) bool { return over[h] != nil }) {
		return
	}
	for _, h := range handlers {
		if over[h] == nil {
			delete(base, h)
		}
	}
}

// listKeys returns the function that identifies an entry of a list, nil for a list that is replaced as a whole.
func listKeys(list string) func(map[string]any) string {
	by := func(fields ...string) func(map[string]any) string {
		return func(m map[string]any) (key string) {
			for _, f := range fields {
				key += fmt.Sprint(m[f]) + "\x00"
			}
			return key
		}
	}
	switch list {
	case "env", "sysctls":
		return by("name")
	case "ports":
		return func(m map[string]any) string {
			if m["protocol"] == nil {
				return fmt.Sprint(m["containerPort"], "/", corev1.ProtocolTCP)
			}
			return fmt.Sprint(m["containerPort"], "/", m["protocol"])
		}
	case "volumeMounts":
		return by("mountPath")
	case "volumeDevices":
		return by("devicePath")
	}
	return nil
}

func mergeLists(base, over []any, key func(map[string]any) string) []any {
	out := slices.Clone(base)
	places := map[string]int{} // of the first entry with each key
	place := func(entry any, n int) (former int, had bool) {
		m, ok := entry.(map[string]any)
		if !ok {
			return 0, false
		}
		k := key(m)
		if former, had = places[k]; !had {
			places[k] = n
		}
		return former, had
	}
	for n, b := range base {
		place(b, n)
	}
	for _, o := range over {
		if n, had := place(o, len(out)); had {
			out[n] = o
		} else {
			out = append(out, o)
		}
	}
	return out
}

// Of returns a value as JSON objects, lists and scalars.
func Of(v any) (map[string]any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	var tree map[string]any
	err = json.Unmarshal(b, &tree)
	return tree, err
}

// Into reads a value from JSON objects, lists and scalars.
func Into(tree map[string]any, into any) error {
	b, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	return json.Unmarshal(b, into)
}
