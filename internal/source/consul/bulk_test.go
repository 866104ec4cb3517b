package consul

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestChecks: a comparison of two lists of checks returns the services and nodes whose checks differ, in any order of the lists.
func TestChecks(t *testing.T) {
	const (
		web   = `{"Node": "n1", "CheckID": "a", "ServiceName": "web", "ModifyIndex": 7}`
		again = `{"Node": "n1", "CheckID": "a", "ServiceName": "web", "ModifyIndex": 8}`
		other = `{"Node": "n2", "CheckID": "a", "ServiceName": "web", "ModifyIndex": 7}`
		db    = `{"Node": "n1", "CheckID": "b", "ServiceName": "db", "ModifyIndex": 7}`
		node  = `{"Node": "n1", "CheckID": "serfHealth", "ServiceName": "", "ModifyIndex": 7}`
	)
	for _, test := range []struct {
		was, is         string
		services, nodes []string
	}{
		{web + "," + db, db + "," + web, nil, nil},
		{web + "," + db, again + "," + db, []string{"web"}, nil},
		{web + "," + db, web + "," + other + "," + db, []string{"web"}, nil},
		{web + "," + db, web, []string{"db"}, nil},
		{web, web + "," + db + "," + node, []string{"db"}, []string{"n1"}},
	} {
		was, err := decodeChecks([]byte("[" + test.was + "]"))
		if err != nil {
			t.Fatal(err)
		}
		is, err := decodeChecks([]byte("[" + test.is + "]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := differences(was.services, is.services); !slices.Equal(got, test.services) {
			t.Errorf("from %s to %s: services %v, want %v", test.was, test.is, got, test.services)
		}
		if got := differences(was.nodes, is.nodes); !slices.Equal(got, test.nodes) {
			t.Errorf("from %s to %s: nodes %v, want %v", test.was, test.is, got, test.nodes)
		}
	}
	if _, err := decodeChecks([]byte("{}")); err == nil {
		t.Error("an answer that is no list is taken")
	}
}

// BenchmarkChecks reads the list of 30,000 checks, as a server writes it.
func BenchmarkChecks(b *testing.B) {
	var text strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&text, `,{"Node":"node-%d","CheckID":"service:svc-%d-%d","Name":"check","Status":"passing","Notes":"","Output":"","ServiceID":"svc-%d-%d",`+
			`"ServiceName":"svc-%d","ServiceTags":[],"Type":"","Interval":"","Timeout":"","ExposedPort":0,"Definition":{},"CreateIndex":%d,"ModifyIndex":%d}`,
			i%30, i/3, i%3, i/3, i%3, i/3, i, i)
	}
	body := []byte("[" + text.String()[1:] + "]")
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := decodeChecks(body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNames reads the names of 10,000 services.
func BenchmarkNames(b *testing.B) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, `,"svc-%d":["a","b=c"]`, i)
	}
	body := []byte("{" + text.String()[1:] + "}")
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, _, err := decodeNames(body); err != nil {
			b.Fatal(err)
		}
	}
}
