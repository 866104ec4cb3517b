package file

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
)

// doc is a document of the model: the name of its object, its version and its state.
type doc struct {
	name    string
	version int
	state   string // good, broken (but known whose), nameless, garbage
}

func (d doc) text() string {
	name, resolution := d.name, "STATIC"
	switch d.state {
	case "broken":
		resolution = "STATISTIC"
	case "nameless":
		name = "{}"
	case "garbage":
		return "kind: ServiceEntry\nspec: [\n"
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s}
spec: {hosts: [a.example.com], ports: [{number: %d, name: http}], resolution: %s}
`, name, d.version, resolution)
}

func render(docs []doc) []byte {
	var out []byte
	for _, d := range docs {
		out = append(append(out, "---\n"...), d.text()...)
	}
	return out
}

// TestLedger makes random edits and compares with the result of the rules, computed from scratch.
func TestLedger(t *testing.T) {
	drawDoc := rapid.Custom(func(t *rapid.T) doc {
		return doc{
			name:    rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"),
			version: rapid.IntRange(1, 3).Draw(t, "version"),
			state:   rapid.SampledFrom([]string{"good", "good", "good", "broken", "nameless", "garbage"}).Draw(t, "state"),
		}
	})
	drawFile := rapid.SliceOfN(drawDoc, 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(waits{})
		files := map[string][]doc{}
		sunk := map[api.Key]*api.Object{}
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			before := maps.Clone(sunk)
			for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1.yaml", "2.yaml", "3.yaml"}), 1, 3, rapid.ID).Draw(t, "paths") {
				switch rapid.SampledFrom([]string{"write", "write", "write", "remove", "unreadable"}).Draw(t, "edit") {
				case "write":
					files[path] = drawFile.Draw(t, "file")
					l.read(path, render(files[path]), time.Time{}, time.Time{}, false)
				case "remove":
					delete(files, path)
					l.remove(path)
				case "unreadable":
					if _, ok := files[path]; ok {
						files[path] = []doc{{state: "garbage"}}
						l.unreadable(path, problem(path, api.Error, "no"))
					}
				}
			}
			events, _ := l.commit(nil)
			sink(t, sunk, events)
			compare(t, files, before, sunk, l.problems)
		}
		// Without broken documents, history does not matter.
		fresh := newLedger(waits{})
		for path, docs := range files {
			docs = slices.Clone(docs)
			docs = slices.DeleteFunc(docs, func(d doc) bool { return d.state != "good" })
			l.read(path, render(docs), time.Time{}, time.Time{}, false)
			fresh.read(path, render(docs), time.Time{}, time.Time{}, false)
		}
		events, _ := l.commit(nil)
		sink(t, sunk, events)
		fresh.commit(nil)
		if !maps.EqualFunc(sunk, fresh.published, func(a *api.Object, b version) bool { return b.same(version{object: a}) }) {
			t.Fatalf("healed: %v, from scratch: %v", sunk, fresh.published)
		}
		if !slices.Equal(l.problems, fresh.problems) {
			t.Fatalf("healed:\n%v\nfrom scratch:\n%v", l.problems, fresh.problems)
		}
	})
}

func sink(t *rapid.T, sunk map[api.Key]*api.Object, events []source.Event) {
	for i, e := range events {
		if i > 0 && events[i-1].Key.Compare(e.Key) >= 0 {
			t.Fatalf("events out of order: %v", events)
		}
		old := sunk[e.Key]
		switch {
		case e.Object == nil && old == nil:
			t.Fatalf("%v removed but not there", e.Key)
		case e.Object == nil:
			delete(sunk, e.Key)
		case old != nil && old.Hash == e.Object.Hash:
			t.Fatalf("%v comes again", e.Key)
		default:
			sunk[e.Key] = e.Object
		}
	}
}

// compare checks the rules that depend on the documents alone.
func compare(t *rapid.T, files map[string][]doc, before, now map[api.Key]*api.Object, problems []api.Problem) {
	unsure := false // some document does not name its object
	first := map[string]doc{}
	named := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		for _, d := range files[path] {
			switch d.state {
			case "nameless", "garbage":
				unsure = true
				continue
			}
			if _, ok := first[d.name]; !ok {
				first[d.name] = d
			}
			named[d.name] = true
		}
	}
	if unsure != slices.ContainsFunc(problems, func(p api.Problem) bool { return p.Severity == api.Error && p.Object.Name == "" }) {
		t.Fatalf("unsure %v, problems %v", unsure, problems)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		key := api.Key{Kind: "ServiceEntry", Namespace: "default", Name: name}
		o := now[key]
		d := first[name]
		switch {
		case d.state == "good":
			if o == nil {
				t.Fatalf("%s is lost", name)
			}
			want := api.Decode("", []byte(d.text()))[0].Object
			if o.Hash != want.Hash {
				t.Fatalf("%s is not the first version", name)
			}
		case named[name] && before[key] != nil && o == nil:
			t.Fatalf("%s is lost although a broken document names it", name)
		case !named[name] && !unsure && o != nil:
			t.Fatalf("%s is there although nobody names it", name)
		case before[key] == nil && o != nil && !named[name]:
			t.Fatalf("%s appeared from nowhere", name)
		}
	}
}

// TestUnchangedDocuments: a document that is unchanged in an edited file is not decoded again.
func TestUnchangedDocuments(t *testing.T) {
	l := newLedger(waits{})
	docs := []doc{{"a", 1, "good"}, {"b", 1, "good"}}
	l.read("x.yaml", render(docs), time.Time{}, time.Time{}, false)
	l.commit(nil)
	before := l.published[api.Key{Kind: "ServiceEntry", Namespace: "default", Name: "b"}].object
	docs[0].version = 2
	l.read("x.yaml", append([]byte("# a line\n"), render(docs)...), time.Time{}, time.Time{}, false)
	events, _ := l.commit(nil)
	if len(events) != 1 || events[0].Key.Name != "a" {
		t.Fatalf("events %v", events)
	}
	for _, c := range l.claims[before.Key] {
		if c.object.Spec != before.Spec {
			t.Error("b was decoded again")
		}
		if c.at.Line != before.Position.Line+1 || c.object.Position != c.at {
			t.Errorf("b is at %v, was at %v", c.object.Position, before.Position)
		}
	}
}
