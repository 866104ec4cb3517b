package api

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
)

// seeds adds all documents of the test data.
func seeds(f *testing.F) {
	for _, pattern := range []string{"testdata/verdicts/*.txtar", "testdata/decode/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				f.Fatal(err)
			}
			for _, doc := range archive.Files {
				f.Add(doc.Data)
			}
		}
	}
	f.Add([]byte("a: &a [*a, *a]\n---\n<<: *a\n"))
}

// slow is far longer than reading a fuzzer's input takes, and far shorter than an unbounded expansion takes.
const slow = 10 * time.Second

// FuzzDecode: whatever the bytes, reading them ends soon without panic; an object that comes out of it can be written
// and read again and is the same; every problem has a place.
func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		begin := time.Now()
		docs := Decode("f.yaml", data)
		for i := range docs {
			o := docs[i].Object
			docs[i].Check()
			if o != nil {
				again(t, o)
			}
			for _, p := range docs[i].Problems {
				if p.Reason == "" || p.Position.Line == 0 || p.Severity == 0 {
					t.Errorf("a problem without place or reason: %+v", p)
				}
				noPanic(t, p)
			}
			if (docs[i].Object == nil) != (o == nil || Failed(docs[i].Problems)) {
				t.Errorf("object %v in spite of %v", docs[i].Object, docs[i].Problems)
			}
		}
		if took := time.Since(begin); took > slow {
			t.Errorf("took %v", took)
		}
	})
}

// noPanic fails for a problem that reports a contained panic.
func noPanic(t *testing.T, p Problem) {
	t.Helper()
	if strings.HasPrefix(p.Reason, "internal error") {
		t.Errorf("a panic: %v", p)
	}
}

// again writes an object as JSON and reads it.
func again(t *testing.T, o *Object) {
	t.Helper()
	spec, err := protojson.Marshal(o.Spec)
	if err != nil {
		t.Fatalf("%v: %v", o, err)
	}
	meta := map[string]any{"name": o.Name, "namespace": o.Namespace, "labels": o.Labels}
	if !o.Created.IsZero() {
		meta["creationTimestamp"] = o.Created.Format(time.RFC3339Nano)
	}
	if len(o.Annotations) > 0 {
		meta["annotations"] = o.Annotations
	}
	status := map[string]any{}
	if o.Healthy {
		status["conditions"] = []any{map[string]any{"type": "Healthy", "status": "True"}}
	}
	if len(o.Allocated) > 0 {
		var addresses []any
		for _, a := range o.Allocated {
			addresses = append(addresses, map[string]any{"host": a.Host, "value": a.Address})
		}
		status["addresses"] = addresses
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": kindNamed(o.Kind).Group() + "/v1", "kind": o.Kind, "metadata": meta, "spec": json.RawMessage(spec), "status": status})
	if err != nil {
		t.Fatalf("%v: %v", o, err)
	}
	docs := DecodeServed("again.json", text)
	if len(docs) != 1 || docs[0].Object == nil || docs[0].Object.Hash != o.Hash {
		t.Fatalf("%s\nwas read as %v", text, docs)
	}
}

// FuzzDecodeMesh: whatever the bytes, reading them ends soon, with a configuration or with an Error.
func FuzzDecodeMesh(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		begin := time.Now()
		m, problems := DecodeMesh("mesh.yaml", data)
		if (m == nil) != Failed(problems) {
			t.Errorf("%v with %v", m, problems)
		}
		for _, p := range append(problems, UnsupportedMesh("mesh.yaml", data, false)...) {
			noPanic(t, p)
		}
		if took := time.Since(begin); took > slow {
			t.Errorf("took %v", took)
		}
	})
}

// kindNamed is the kind of a name; the zero kind if there is none.
func kindNamed(name string) Kind {
	k, _ := FindKind(name)
	return k
}
