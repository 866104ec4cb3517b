package traffic

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"
)

func exact(s string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: s}}
}

func prefix(s string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: s}}
}

func regex(s string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: s}}
}

// The match of a delegate must lie within the match of its root. If that cannot be decided, it does not.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		root, leaf *networking.StringMatch
		want       bool
	}{
		{exact("/a"), exact("/a"), true},
		{exact("/a"), exact("/b"), false},
		{exact("/a"), prefix("/a"), false},
		{prefix("/a"), exact("/a"), true},
		{prefix("/a"), exact("/ab"), true},
		{prefix("/a"), exact("/b"), false},
		{prefix("/a"), prefix("/a/b"), true},
		{prefix("/a/b"), prefix("/a"), false},
		{prefix("/a"), regex("/a"), false},
		{regex(".*"), exact("/a"), false},
	} {
		if got := isWithin(c.root, c.leaf); got != c.want {
			t.Errorf("%v lies within %v: %v", c.leaf, c.root, got)
		}
	}
}

// A conflict is named by its field. What only one of the two matches sets is no conflict.
func TestConflict(t *testing.T) {
	type match = networking.HTTPMatchRequest
	for name, c := range map[string]struct {
		root, leaf *match
		want       string
	}{
		"nothing in common": {&match{Uri: prefix("/a"), Port: 80}, &match{Method: exact("GET"), SourceLabels: map[string]string{"a": "b"}}, ""},
		"path":              {&match{Uri: prefix("/a")}, &match{Uri: prefix("/b")}, "uri"},
		"another header": {
			&match{Headers: map[string]*networking.StringMatch{"a": exact("1")}},
			&match{Headers: map[string]*networking.StringMatch{"b": exact("2")}}, "",
		},
		"the same header": {
			&match{Headers: map[string]*networking.StringMatch{"a": exact("1")}},
			&match{Headers: map[string]*networking.StringMatch{"a": exact("2")}}, "headers.a",
		},
		"port":             {&match{Port: 80}, &match{Port: 81}, "port"},
		"label":            {&match{SourceLabels: map[string]string{"a": "1"}}, &match{SourceLabels: map[string]string{"a": "2"}}, "sourceLabels.a"},
		"gateways within":  {&match{Gateways: []string{"mesh", "edge"}}, &match{Gateways: []string{"mesh"}}, ""},
		"gateways beyond":  {&match{Gateways: []string{"mesh"}}, &match{Gateways: []string{"edge"}}, "gateways"},
		"gateways of leaf": {&match{}, &match{Gateways: []string{"edge"}}, ""},
		"source of root":   {&match{SourceNamespace: "a"}, &match{}, ""},
		"sources":          {&match{SourceNamespace: "a"}, &match{SourceNamespace: "b"}, "sourceNamespace"},
		"case of leaf":     {&match{Uri: prefix("/a")}, &match{Uri: exact("/a/b"), IgnoreUriCase: true}, "ignoreUriCase"},
		"case of root":     {&match{Uri: prefix("/A"), IgnoreUriCase: true}, &match{Uri: exact("/a/b")}, ""},
		"path, no case":    {&match{Uri: prefix("/A"), IgnoreUriCase: true}, &match{Uri: prefix("/b")}, "uri"},
	} {
		if got := conflict(c.root, c.leaf); got != c.want {
			t.Errorf("%s: conflict in %q, want %q", name, got, c.want)
		}
	}
}

// Every pair of a root's and a delegate's match that fit together becomes one match. A delegate's match that fits none
// drops the rule.
func TestMergeMatches(t *testing.T) {
	root := []*networking.HTTPMatchRequest{
		{Name: "one", Uri: prefix("/a"), Headers: map[string]*networking.StringMatch{"x": exact("1")}},
		{Name: "two", Uri: prefix("/b")},
	}
	out, why := mergeMatches(root, []*networking.HTTPMatchRequest{{Uri: prefix("/b/c")}, {Name: "any", Port: 80}})
	if why != "" || len(out) != 3 {
		t.Fatalf("%d matches, %q", len(out), why)
	}
	if m := out[0]; m.Name != "two" || m.Uri.GetPrefix() != "/b/c" || len(m.Headers) != 0 {
		t.Errorf("the first is %v", m)
	}
	if m := out[1]; m.Name != "one-any" || m.Uri.GetPrefix() != "/a" || m.Headers["x"].GetExact() != "1" || m.Port != 80 {
		t.Errorf("the second is %v", m)
	}
	of := []*networking.HTTPMatchRequest{{Uri: prefix("/A"), IgnoreUriCase: true, SourceNamespace: "n"}}
	out, why = mergeMatches(of, []*networking.HTTPMatchRequest{{Uri: exact("/a/b")}, {Port: 80}})
	if why != "" || len(out) != 2 {
		t.Fatalf("%d matches, %q", len(out), why)
	}
	if m := out[0]; m.Uri.GetExact() != "/a/b" || m.IgnoreUriCase || m.SourceNamespace != "n" {
		t.Errorf("with a path of its own: %v", m)
	}
	if m := out[1]; m.Uri.GetPrefix() != "/A" || !m.IgnoreUriCase || m.SourceNamespace != "n" {
		t.Errorf("without: %v", m)
	}
	for _, leaf := range [][]*networking.HTTPMatchRequest{
		{{Uri: prefix("/b")}, {Uri: prefix("/c")}}, {{Uri: prefix("/c")}, {Uri: prefix("/b")}},
	} {
		if out, why := mergeMatches(root, leaf); why == "" || out != nil {
			t.Errorf("one match lies outside both of the root's, and the rule keeps %v (%q)", out, why)
		}
	}
}
