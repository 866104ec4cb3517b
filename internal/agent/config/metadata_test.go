package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/config/variables"
)

// TestNodeMetadata: the table has each key once, with its effect or the reason why it has none; the control plane or the agent reads the keys that do
// something, and the table has all keys that the control plane reads.
func TestNodeMetadata(t *testing.T) {
	files, err := filepath.Glob("../../proxy/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var control strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			control.Write(text)
		}
	}
	inNode, err := os.ReadFile("../node/variables.go")
	if err != nil {
		t.Fatal(err)
	}
	read := sources(t) + control.String() + string(inNode)
	seen := map[string]bool{}
	for _, v := range nodeMetadata {
		if (v.Does == "") == (v.Lacks == "") || seen[v.Name] {
			t.Errorf("%s: the table must say once, and one of what it does and why it has no effect", v.Name)
		}
		seen[v.Name] = true
		if v.Does != "" && !strings.HasPrefix(v.Does, "conditions of EnvoyFilters only") && !strings.Contains(read, `"`+v.Name+`"`) {
			t.Errorf("%s acts as the table says, and nothing reads it", v.Name)
		}
	}
	values := []string{"REDIRECT", "TPROXY", "NONE"}
	for _, found := range regexp.MustCompile(`"([A-Z][A-Z0-9_]+)"`).FindAllStringSubmatch(control.String(), -1) {
		key := found[1]
		i := slices.IndexFunc(nodeMetadata, func(v variables.Variable) bool { return v.Name == key })
		if !slices.Contains(values, key) && (i < 0 || nodeMetadata[i].Lacks != "" && key != "GENERATOR") {
			t.Errorf("the control plane reads %s, and the table does not say so", key)
		}
	}
}
