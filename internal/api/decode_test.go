package api

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestDecode compares the objects and problems of documents with testdata/decode: each file of an
// archive is followed by the expected result.
func TestDecode(t *testing.T) {
	files, err := filepath.Glob("testdata/decode/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files (%v)", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out []txtar.File
		for i, f := range archive.Files {
			if strings.HasSuffix(f.Name, ".want") {
				continue
			}
			got := summary(f.Name, f.Data)
			out = append(out, f, txtar.File{Name: f.Name + ".want", Data: []byte(got)})
			if *update {
				continue
			}
			t.Run(filepath.Base(file)+"/"+f.Name, func(t *testing.T) {
				want := ""
				if i+1 < len(archive.Files) && archive.Files[i+1].Name == f.Name+".want" {
					want = string(archive.Files[i+1].Data)
				}
				if got != want {
					t.Errorf("got:\n%s\nwant:\n%s\n(go test -run TestDecode -update rewrites it)", got, want)
				}
			})
		}
		if *update {
			archive.Files = out
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// summary returns the objects and problems of a file, one line for each object and each problem.
func summary(name string, data []byte) string {
	// txtar cannot hold these
	data = []byte(strings.NewReplacer("␍\n", "\r\n", "␉", "\t", "<BOM>", "\ufeff").Replace(string(data)))
	var b strings.Builder
	for _, d := range Decode(name, data) {
		d.Check()
		switch {
		case d.Object != nil:
			fmt.Fprintf(&b, "%v: %v\n", d.Object.Position, d.Object)
		case d.Identified:
			fmt.Fprintf(&b, "%v: broken %v\n", d.Position, d.Key)
		}
		for _, p := range d.Problems {
			fmt.Fprintf(&b, "  %v\n", p)
		}
	}
	return b.String()
}

const plain = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a}
spec: {hosts: [a.example.com], ports: [{number: 80, name: http}], resolution: STATIC}
`

func only(t *testing.T, text string) Document {
	t.Helper()
	docs := Decode("f.yaml", []byte(text))
	if len(docs) != 1 {
		t.Fatalf("%d documents, want 1: %v", len(docs), docs)
	}
	return docs[0]
}

func TestLimits(t *testing.T) {
	filler := func(n int) string { return "# " + strings.Repeat("x", n) + "\n" }
	pad := largestPad(len(plain))
	if d := only(t, plain+filler(pad)); d.Object == nil {
		t.Errorf("a document of the greatest size is refused: %v", d.Problems)
	}
	docs := Decode("f.yaml", []byte(plain+filler(pad+1)+"---\n"+plain))
	if len(docs) != 2 || docs[0].Object != nil || docs[1].Object == nil {
		t.Fatalf("a document that is too large: %v", docs)
	}
	if got := docs[0].Problems[0].String(); got != "f.yaml:1: error: the document has 2097153 bytes, the limit is 2097152; split the object" {
		t.Error(got)
	}
	docs = Decode("f.yaml", []byte(strings.Repeat("--- a\n", maxDocuments+1)))
	if len(docs) != 1 || docs[0].Problems[0].String() != "f.yaml: error: the file has 131073 documents, the limit is 131072; split it" {
		t.Errorf("a file of too many documents: %d", len(docs))
	}
	docs = Decode("f.yaml", make([]byte, MaxFile+1))
	if len(docs) != 1 || docs[0].Problems[0].String() != "f.yaml: error: the file has 67108865 bytes, the limit is 67108864; split it" {
		t.Errorf("a file that is too large: %v", docs)
	}
}

// largestPad is how much filler makes a document of n bytes as large as is allowed.
func largestPad(n int) int { return document.MaxDocument - n - len("# \n") }

// cpuTime is the CPU time of the process so far. Unlike elapsed time, it does not depend on other processes.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestHostile reads malicious documents. Each must be answered quickly.
func TestHostile(t *testing.T) {
	const size = 1 << 17 // enough to distinguish linear from quadratic time
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i)
	}
	merges := "a: &a {" + strings.Repeat("k: 1, ", 1000) + "}\nb: {<<: [" + strings.Repeat("*a, ", 200) + "]}\n"
	for name, text := range map[string]string{
		"laughs":       laughs,
		"merges":       merges,
		"itself":       "&a [*a, *a]",
		"merge itself": "&a {<<: *a}",
		"lists":        strings.Repeat("[", size),
		"mappings":     strings.Repeat("{a: ", size/4),
		"dashes":       strings.Repeat("- ", size/2),
		"questions":    strings.Repeat("? ", size/2),
		"colons":       strings.Repeat(": ", size/2),
		"indents":      indents(size),
		"comments":     strings.Repeat("#\n", size/2),
		"comments in":  "a:\n" + strings.Repeat("  #\n", size/8) + "  b: 1\n",
		"keys":         strings.Repeat("a: 1\n", size/5),
		"items":        "[" + strings.Repeat("1,", size/2) + "]",
		"anchors":      strings.Repeat("- &a 1\n", size/7),
		"quotes":       "a: \"" + strings.Repeat("\\u0041", size/6) + "\"",
		"open quote":   "a: '" + strings.Repeat("x\n", size/2),
		"block":        "a: |\n" + strings.Repeat(" x\n", size/3),
		"tags":         strings.Repeat("- !a 1\n", size/7),
		"markers":      strings.Repeat("---\n", size/4),
		"documents":    strings.Repeat("--- a\n", size/6),
		"unknown":      "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: a}\nspec:\n" + strings.Repeat("  x: 1\n", size/7),
		"zeros":        strings.Repeat("\x00", size),
		"binary":       strings.Repeat("\xff\xfe", size/2),
	} {
		t.Run(name, func(t *testing.T) {
			used := cpuTime(t)
			docs := Decode("f.yaml", []byte(text))
			if used = cpuTime(t) - used; used > 20*time.Second {
				t.Errorf("it took %v of CPU", used)
			}
			for _, d := range docs {
				if d.Object != nil {
					t.Errorf("an object: %v", d.Object)
				}
				if n := len(d.Problems); n == 0 || n > 2*(document.MaxFindings+1) {
					t.Fatalf("%d problems", n)
				}
			}
		})
	}
}

func indents(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// TestHash: the hash changes if and only if the meaning of the document changes.
func TestHash(t *testing.T) {
	base := only(t, plain).Object.Hash
	for _, same := range []string{
		"# comment\n" + plain,
		strings.Replace(plain, "{name: a}", "{namespace: default, name: a, annotations: {x: y}, uid: u, labels: {}}", 1),
		strings.Replace(plain, "networking.istio.io/v1\n", "networking.istio.io/v1beta1\n", 1),
		strings.Replace(plain, "resolution: STATIC}", "resolution: STATIC, location: MESH_EXTERNAL, exportTo: []}", 1),
		`{"spec": {"resolution": "STATIC", "ports": [{"name": "http", "number": 80.0}], "hosts": ["a.example.com"]},
		  "metadata": {"name": "a"}, "kind": "ServiceEntry", "apiVersion": "networking.istio.io/v1"}`,
		plain + "status: {conditions: []}\n",
	} {
		d := only(t, same)
		if d.Object == nil || d.Object.Hash != base {
			t.Errorf("another hash: %s%v", same, d.Problems)
		}
	}
	hashes := map[string]string{string(base[:]): plain}
	for _, other := range []string{
		strings.Replace(plain, "name: a}", "name: b}", 1),
		strings.Replace(plain, "{name: a}", "{name: a, namespace: b}", 1),
		strings.Replace(plain, "{name: a}", "{name: a, labels: {x: y}}", 1),
		strings.Replace(plain, "{name: a}", "{name: a, labels: {xy: ''}}", 1),
		strings.Replace(plain, "{name: a}", "{name: a, annotations: {networking.istio.io/traffic-distribution: x}}", 1),
		plain + "status: {conditions: [{type: Healthy, status: 'True'}]}\n",
		strings.Replace(plain, "{name: a}", "{name: a, creationTimestamp: 2024-01-02T03:04:05Z}", 1),
		strings.Replace(plain, "{name: a}", "{name: a, creationTimestamp: '2024-01-02T03:04:06Z'}", 1),
		strings.Replace(plain, "80", "81", 1),
		strings.Replace(plain, "STATIC", "DNS", 1),
	} {
		d := only(t, other)
		if d.Object == nil {
			t.Fatalf("%s%v", other, d.Problems)
		}
		if twin, dup := hashes[string(d.Object.Hash[:])]; dup {
			t.Errorf("the same hash:\n%s\n%s", twin, other)
		}
		hashes[string(d.Object.Hash[:])] = other
	}
	spec := &networking.ServiceEntry{Hosts: []string{"a.example.com"}, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: 80, Name: "http"}}}
	sealed, err := Object{Key: Key{Name: "a"}, Spec: spec}.Seal()
	if err != nil || sealed.Hash != base {
		t.Errorf("an object made in code has another hash: %v, %v", sealed, err)
	}
	if got := fmt.Sprintf("%x", base); got != goldenHash {
		t.Errorf("the hash is not what it was in other builds: %s, want %s", got, goldenHash)
	}
}

// goldenHash is the hash of plain: hashes must be the same in every process and build.
const goldenHash = "e07fdf194e8248b3a08fdd5447eebad3"

func TestSeal(t *testing.T) {
	spec := &networking.Sidecar{}
	for want, o := range map[string]Object{
		"no kind has a spec of type":   {Key: Key{Name: "a"}},
		"spec of type *v1alpha3.Side":  {Key: Key{Name: "a"}, Spec: (*networking.Sidecar)(nil)},
		"the spec belongs to a Sideca": {Key: Key{Kind: "ServiceEntry", Name: "a"}, Spec: spec},
		"is not an object name":        {Key: Key{Name: "A"}, Spec: spec},
		"is not a DNS label":           {Key: Key{Name: "a", Namespace: "b.c"}, Spec: spec},
		"metadata.labels":              {Key: Key{Name: "a"}, Labels: map[string]string{"-": ""}, Spec: spec},
		"cannot be encoded":            {Key: Key{Name: "a"}, Spec: &networking.WorkloadEntry{Address: "\xff"}},
	} {
		if _, err := o.Seal(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	o, err := Object{Key: Key{Name: "a"}, Spec: spec}.Seal()
	if err != nil || o.Key != (Key{Kind: "Sidecar", Namespace: "default", Name: "a"}) {
		t.Errorf("%v, %v", o, err)
	}
}

// TestPanicsAreContained: a panic in the rules of a kind affects only the documents that cause it.
func TestPanicsAreContained(t *testing.T) {
	// No decoder returns this nil, which the rules dereference.
	d := Document{Key: Key{Kind: "VirtualService", Namespace: "a", Name: "b"}, Position: Position{File: "f.yaml", Line: 3}}
	d.Object = &Object{Key: d.Key, Spec: (*networking.VirtualService)(nil)}
	d.Check()
	if d.Object != nil || len(d.Problems) != 1 || !strings.HasPrefix(d.Problems[0].Reason, "internal error") || d.Problems[0].Position != d.Position {
		t.Errorf("object %v, problems %v", d.Object, d.Problems)
	}
}

// TestDecodeServed: fields that only the API server may know are warnings; misspelt fields are errors.
func TestDecodeServed(t *testing.T) {
	const rule = `{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a}, spec: {host: a, %s: {}}}`
	for field, want := range map[string]Severity{"hologram": Warning, "trafficPolcy": Error} {
		docs := DecodeServed("cluster", []byte(strings.ReplaceAll(rule, "%s", field)))
		if len(docs) != 1 || len(docs[0].Problems) != 1 || docs[0].Problems[0].Severity != want || (docs[0].Object == nil) != (want == Error) {
			t.Errorf("%s: %+v", field, docs)
		}
		if docs := Decode("a.yaml", []byte(strings.ReplaceAll(rule, "%s", field))); docs[0].Object != nil || !Failed(docs[0].Problems) {
			t.Errorf("%s in a file: %+v", field, docs)
		}
	}
}
