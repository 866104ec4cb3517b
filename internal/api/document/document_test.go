package document

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"
)

// TestSplit: documents are cut at markers only, keep their bytes, and know their line.
func TestSplit(t *testing.T) {
	line := rapid.SampledFrom([]string{"---", "--- ", "---\t#", "--- a", "...", "----", " ---", "a: 1", "", "# c", "%YAML 1.2", "...x", "--"})
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(line).Draw(t, "lines")
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
		data := []byte(strings.Join(lines, end))
		for _, d := range Split(data) {
			all := bytes.SplitAfter(data, []byte("\n"))
			if got := bytes.Join(all[d.Before:], nil); !bytes.HasPrefix(got, d.Data) {
				t.Fatalf("%q does not stand in line %d of %q", d.Data, d.Before+1, data)
			}
			first, rest, _ := bytes.Cut(d.Data, []byte("\n"))
			for l := range bytes.Lines(rest) {
				if isMarker(l) {
					t.Fatalf("%q goes on behind a marker", d.Data)
				}
			}
			if d.Before > 0 && !isMarker(first) {
				t.Fatalf("%q begins without a marker", d.Data)
			}
		}
		content := 0
		for _, l := range lines {
			switch l {
			case "--- a", "a: 1", "----", " ---", "...x", "--":
				content++
			}
		}
		if (content > 0) != (len(Split(data)) > 0) {
			t.Fatalf("%d documents of %q", len(Split(data)), data)
		}
	})
}

func TestLineOf(t *testing.T) {
	v, err := Text{Before: 10, Data: []byte(`spec:
  http:
  - match:
    - uri:
        prefix: /
      headers:
        x-a.b: {exact: c}
    max_size: 1
  labels:
    app.kubernetes.io/name: x
`)}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]int{
		"": 11, "spec": 11, "spec.http": 12, "spec.http[0]": 13, "spec.http[0].match": 13, "spec.http[0].match[0].uri": 14,
		"spec.http[0].match[0].uri.prefix": 15, "spec.http[0].match[0].headers[x-a.b].exact": 17, "spec.http[0].maxSize": 18,
		"spec.labels[app.kubernetes.io/name]": 20,
		// a missing field has the line of the nearest parent
		"spec.http[0].timeout": 13, "spec.http[7].timeout": 12, "spec.http[x": 12, "spec.http[x]": 12, "other": 11, "spec.labels[other].x": 19,
	} {
		if got := v.LineOf(field); got != want {
			t.Errorf("%s is in line %d, want %d", field, got, want)
		}
	}
}

func TestClosest(t *testing.T) {
	names := []string{"timeout", "retries", "match", "route", "outboundTrafficPolicy"}
	for wrong, want := range map[string]string{
		"timeOut": "timeout", "time_out": "timeout", "retry": "", "retrys": "retries", "matches": "match", "routes": "route", "x": "", "": "",
		"outbound": "outboundTrafficPolicy", "outboundTraffic": "outboundTrafficPolicy", "outboundT": "", "out": "",
	} {
		if got := closest(wrong, names); got != want {
			t.Errorf("%s: %q, want %q", wrong, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	var r Report
	for range MaxFindings {
		r.Warn(1, nil, "x")
	}
	if r.Failed() {
		t.Error("warnings are failures")
	}
	r.Warn(1, nil, "x")
	r.Fail(1, nil, "x")
	r.Fail(1, nil, "x")
	last := r.Findings()[len(r.Findings())-1]
	if len(r.Findings()) != MaxFindings+1 || !r.Failed() || last.Warning {
		t.Errorf("%d findings, failed %v, last %v", len(r.Findings()), r.Failed(), last)
	}
}

// TestFree: values without a schema are read as they are, with their keys checked.
func TestFree(t *testing.T) {
	read := func(text string) (*structpb.Struct, string) {
		v, err := Text{Data: []byte(text)}.Parse()
		if err != nil {
			t.Fatal(err)
		}
		m := new(structpb.Struct)
		return m, fmt.Sprint(Read(m, v, nil, Options{}))
	}
	m, findings := read(`{a: [1, 2.5, true, null, "x", {b: yes}], "c\n": 0x10}`)
	if findings != "[]" || len(m.Fields) != 2 || len(m.Fields["a"].GetListValue().Values) != 6 || m.Fields["c\n"].GetNumberValue() != 16 {
		t.Errorf("%v %v", m, findings)
	}
	if _, findings := read("{a: {b: 1, b: 2}}"); !strings.Contains(findings, "a.b given twice") {
		t.Error(findings)
	}
	if _, findings := read("[1]"); !strings.Contains(findings, "must be a mapping, not a list") {
		t.Error(findings)
	}
}
