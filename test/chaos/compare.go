package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// patience is how long a mesh has to become as a cold start's. A busy machine may take its time.
const patience = time.Minute

// content is what an Envoy holds: by type and name, as JSON.
type content map[string]string

// section says where the resources of a type are in a config_dump.
type section struct {
	typ, list string
	path      []string // to the resource
	name      string   // its field
}

func sections() []section {
	return []section{
		{"cluster", "dynamic_active_clusters", []string{"cluster"}, "name"},
		{"warming cluster", "dynamic_warming_clusters", []string{"cluster"}, "name"},
		{"listener", "dynamic_listeners", []string{"active_state", "listener"}, "name"},
		{"warming listener", "dynamic_listeners", []string{"warming_state", "listener"}, "name"},
		{"route configuration", "dynamic_route_configs", []string{"route_config"}, "name"},
		{"assignment", "dynamic_endpoint_configs", []string{"endpoint_config"}, "cluster_name"},
	}
}

// dump returns the content of an Envoy. Times and versions do not count.
func dump(ctx context.Context, a *testbed.Agent) (content, error) {
	text, err := a.Admin(ctx, "/config_dump?include_eds")
	if err != nil {
		return nil, err
	}
	var page struct{ Configs []map[string]any }
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, fmt.Errorf("config_dump: %w", err)
	}
	all := content{}
	for _, config := range page.Configs {
		for _, s := range sections() {
			list, _ := config[s.list].([]any)
			for _, entry := range list {
				r, ok := inside(entry, s.path)
				if !ok {
					continue
				}
				normal, err := json.MarshalIndent(normalise(r), "", " ") // maps are in order
				if err != nil {
					return nil, err
				}
				all[fmt.Sprintf("%s %v", s.typ, r[s.name])] = string(normal)
			}
		}
	}
	return all, nil
}

func inside(v any, path []string) (map[string]any, bool) {
	m, ok := v.(map[string]any)
	for _, p := range path {
		if !ok {
			break
		}
		m, ok = m[p].(map[string]any)
	}
	return m, ok
}

// normalise drops what Envoy adds to the endpoints it was given, their health.
func normalise(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "health_status")
		for k := range v {
			v[k] = normalise(v[k])
		}
	case []any:
		for i := range v {
			v[i] = normalise(v[i])
		}
	}
	return v
}

// compare waits until every Envoy of hot holds what its twin in cold does, and returns the number of resources by type.
func compare(ctx context.Context, hot, cold *mesh) (sum string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	count := map[string]int{}
	for i := range hot.nodes {
		held, err := equalTwin(ctx, hot.agents[i], cold.agents[i])
		if err != nil {
			return "", fmt.Errorf("%s: %w", hot.nodes[i].Name, err)
		}
		for name := range held {
			typ, _, _ := strings.Cut(name, " ")
			count[typ]++
		}
	}
	return fmt.Sprintf("%d clusters, %d assignments, %d listeners, %d route configurations",
		count["cluster"], count["assignment"], count["listener"], count["route"]), nil
}

// equalTwin waits until two Envoys hold the same, some looks in a row.
func equalTwin(ctx context.Context, hot, cold *testbed.Agent) (held content, err error) {
	const looks, often = 3, 200 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	var differs error // as far as there was time to find out
	for same := 0; same < looks; {
		if held, err = equalOnce(ctx, hot, cold); err == nil {
			same++
		} else {
			same = 0
		}
		if ctx.Err() == nil {
			differs = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("not as after a cold start for %v", patience), differs)
		}
	}
	return held, nil
}

func equalOnce(ctx context.Context, hot, cold *testbed.Agent) (content, error) {
	has, err := dump(ctx, hot)
	if err != nil {
		return nil, err
	}
	want, err := dump(ctx, cold)
	if err != nil {
		return nil, err
	}
	var differences []string
	for name := range has {
		switch {
		case strings.HasPrefix(name, "warming "):
			differences = append(differences, name+": it is warming")
		case want[name] == "":
			differences = append(differences, name+": only it has it")
		case want[name] != has[name]:
			differences = append(differences, fmt.Sprintf("%s: it has\n%s\nafter a cold start it has\n%s", name, has[name], want[name]))
		}
	}
	for name := range want {
		if has[name] == "" {
			differences = append(differences, name+": only after a cold start it has it")
		}
	}
	slices.Sort(differences)
	if len(differences) > 0 {
		return nil, fmt.Errorf("%d differences:\n%s", len(differences), strings.Join(differences[:min(len(differences), 10)], "\n"))
	}
	return has, nil
}
