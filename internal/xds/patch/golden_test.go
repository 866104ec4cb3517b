package patch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden applies patches to messages. A golden file is a txtar archive: "message" is a message of Envoy with its type, and "patches" the spec
// of an EnvoyFilter. "want" is the message after the patches for the context in the comment of the archive, and what became of each.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := patched(t, strings.TrimSpace(string(a.Comment)), section(t, a, "message"), section(t, a, "patches"))
			if *update {
				setSection(a, "want", got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil { //nolint:gosec // a golden file
					t.Fatal(err)
				}
				return
			}
			if want := section(t, a, "want"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func section(t *testing.T, a *txtar.Archive, name string) string {
	t.Helper()
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	if !*update {
		t.Fatalf("the archive has no section %q", name)
	}
	return ""
}

func setSection(a *txtar.Archive, name, text string) {
	for i := range a.Files {
		if a.Files[i].Name == name {
			a.Files[i].Data = []byte(text)
			return
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
}

// patched is the text of a message after patches, with what became of each.
func patched(t *testing.T, comment, message, spec string) string {
	t.Helper()
	context, hosts, _ := strings.Cut(strings.Split(comment, "\n")[0], " ")
	at := Place{Context: networking.EnvoyFilter_PatchContext(networking.EnvoyFilter_PatchContext_value[context])}
	if hosts != "" {
		at.Hosts = func(string) []string { return strings.Fields(hosts) }
	}
	list := patchesOf(t, spec)
	switch m := read(t, message).(type) {
	case *bootstrapv3.Bootstrap:
		return show(t, m, Bootstrap(list))
	case *listenerv3.Listener:
		return show(t, m, Listener(m, at, list))
	case *clusterv3.Cluster:
		return show(t, m, Cluster(m, at, list))
	case *routev3.VirtualHost:
		return show(t, m, VirtualHost(m, "8080", at, list))
	case *routev3.RouteConfiguration:
		return show(t, m, Header(m, at, list))
	}
	t.Fatal("the message is of no type that is patched")
	return ""
}

func show[M proto.Message](t *testing.T, before M, r Result[M]) string {
	t.Helper()
	var b strings.Builder
	for _, o := range r.Outcomes {
		fmt.Fprintf(&b, "# %s: %d", o.Patch.Field(), o.Matched)
		if o.Failure != "" {
			fmt.Fprintf(&b, ", left out, denied %v: %s", o.Denied, strings.ReplaceAll(o.Failure, "\u00a0", " "))
		}
		b.WriteByte('\n')
	}
	switch {
	case r.Removed:
		return b.String() + "# removed\n"
	case !r.Changed:
		if !proto.Equal(before, r.Message) {
			t.Error("the message is changed, and the result says that it is not")
		}
		return b.String() + "# unchanged\n"
	}
	text, err := protojson.Marshal(r.Message)
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.JSONToYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	return b.String() + string(out)
}

func read(t testing.TB, text string) proto.Message {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	a := &anypb.Any{}
	if err := protojson.Unmarshal(data, a); err != nil {
		t.Fatal(err)
	}
	m, err := a.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func patchesOf(t testing.TB, text string) (list []*Patch) {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	spec := &networking.EnvoyFilter{}
	if err := protojson.Unmarshal(data, spec); err != nil {
		t.Fatal(err)
	}
	for i, p := range spec.GetConfigPatches() {
		list = append(list, New(Ref{api.Key{Kind: api.KindEnvoyFilter, Namespace: "ns", Name: "name"}, i}, p))
	}
	return list
}

// Whatever a patch says, it breaks nothing: there is no panic, the message that is given stays as it is, and the result is valid.
func FuzzListener(f *testing.F) {
	archives, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range archives {
		if a, err := txtar.ParseFile(file); err == nil {
			for _, part := range a.Files {
				if part.Name == "patches" {
					if data, err := yaml.YAMLToJSON(part.Data); err == nil {
						f.Add(data)
					}
				}
			}
		}
	}
	text, err := os.ReadFile("testdata/http-filter.txtar")
	if err != nil {
		f.Fatal(err)
	}
	var message string
	for _, part := range txtar.Parse(text).Files {
		if part.Name == "message" {
			message = string(part.Data)
		}
	}
	before := read(f, message).(*listenerv3.Listener)
	f.Fuzz(func(t *testing.T, data []byte) {
		spec := &networking.EnvoyFilter{}
		if protojson.Unmarshal(data, spec) != nil {
			return
		}
		var list []*Patch
		for i, p := range spec.GetConfigPatches() {
			list = append(list, New(Ref{Index: i}, p))
		}
		given := proto.CloneOf(before)
		for _, context := range []networking.EnvoyFilter_PatchContext{networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_GATEWAY} {
			r := Listener(given, Place{Context: context}, list)
			if !proto.Equal(given, before) {
				t.Fatal("the message that was given is changed")
			}
			if !r.Removed && validate(r.Message) != nil {
				t.Fatalf("the result is not valid: %v", validate(r.Message))
			}
			AddedListeners(list)
			AddedClusters(list)
			Extensions(list)
		}
	})
}
