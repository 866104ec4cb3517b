package proxy

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// A condition that cannot be compared holds for no proxy: a patch must not reach proxies that its author did not mean.
func TestConditionHolds(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"COLOUR": "blue", "SIZE": 3})
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Version: "1.29.1", Metadata: metadata}
	set := func(kv ...string) mesh.Labels {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return mesh.LabelsOf(m)
	}
	for name, c := range map[string]struct {
		Condition
		of   *Proxy
		want bool
	}{
		"nothing":             {Condition{}, p, true},
		"version":             {Condition{Version: `^1\.29`}, p, true},
		"another version":     {Condition{Version: `^1\.3`}, p, false},
		"part of the version": {Condition{Version: `29`}, p, true},
		"no version":          {Condition{Version: `.*`}, &Proxy{}, false},
		"no expression":       {Condition{Version: `(`}, p, false},
		"too long":            {Condition{Version: strings.Repeat("1?", 600)}, p, false},
		"metadata":            {Condition{Metadata: set("COLOUR", "blue")}, p, true},
		"other metadata":      {Condition{Metadata: set("COLOUR", "red")}, p, false},
		"two values":          {Condition{Metadata: set("COLOUR", "blue", "SHAPE", "")}, p, false},
		"no text":             {Condition{Metadata: set("SIZE", "3")}, p, false},
		"both":                {Condition{Version: `^1\.30`, Metadata: set("COLOUR", "blue")}, p, false},
	} {
		if got := c.Holds(c.of); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
