package envoy

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

// message is a line of generated code that names a message.
var message = regexp.MustCompile(`(?m)// \d+: ((?:envoy|xds|udpa)\.[a-z0-9_.]+\.[A-Z]\w*)$`)

// version is a part of the names of the messages that current versions of Envoy have.
var version = regexp.MustCompile(`\.v3(alpha)?\.|^udpa\.type\.v1`)

// TestTypes compares types.txt with the modules that hold Envoy's API.
func TestTypes(t *testing.T) {
	modules, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/envoyproxy/go-control-plane/envoy", "github.com/cncf/xds/go").Output()
	if err != nil {
		t.Fatalf("find the modules of Envoy's API: %v", err)
	}
	found := map[string]bool{}
	for dir := range strings.FieldsSeq(string(modules)) {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".pb.go") {
				return err
			}
			code, err := os.ReadFile(path)
			for _, m := range message.FindAllSubmatch(code, -1) {
				if version.Match(m[1]) {
					found[string(m[1])] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	want := strings.Join(names, "\n") + "\n"
	if os.Getenv("UPDATE_TYPES") != "" {
		if err := os.WriteFile("types.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != typeNames {
		t.Error("types.txt is out of date; run this test with UPDATE_TYPES=1")
	}
}

// FuzzCheck checks that any value is judged without a panic, and the same way each time.
func FuzzCheck(f *testing.F) {
	f.Add("CLUSTER", []byte(`{"name":"a","connect_timeout":"1s"}`))
	f.Add("HTTP_FILTER", []byte(`{"name":"a","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"}}`))
	f.Add("LISTENER", []byte(`{"filter_chains":[{"filters":[{"typed_config":{"@type":"x/y.Z","@type":7}}]}]}`))
	f.Fuzz(func(t *testing.T, object string, text []byte) {
		var fields map[string]any
		if json.NewDecoder(bytes.NewReader(text)).Decode(&fields) != nil {
			return
		}
		value, err := structpb.NewStruct(fields)
		if err != nil {
			return
		}
		refused, _ := Check(object, value)
		if again, _ := Check(object, value); again != refused {
			t.Errorf("%q, then %q", refused, again)
		}
	})
}
