package image_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/podrunner/image"
)

func TestFind(t *testing.T) {
	images, err := image.Parse([]byte(`
images:
- {name: "echo:v1", program: bin/echo}
- {name: example.com:5000/echo, program: /bin/other}
- {prefix: registry.k8s.io/, program: sh, files: {/agnhost: bin/agnhost}}
- {prefix: registry.k8s.io/pause, program: sleep, args: [infinity]}
`), "/dir")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, program string }{
		{"echo:v1", "/dir/bin/echo"},
		{"echo:v2", ""},
		{"example.com:5000/echo", "/bin/other"},
		{"example.com:5000/echo:v3", "/bin/other"},
		{"example.com:5000/echo@sha256:0123abcd", "/bin/other"},
		{"registry.k8s.io/pause:3.9", "sleep"},
		{"registry.k8s.io/e2e-test-images/agnhost:2.53", "sh"},
	} {
		got, err := images.Find(test.name)
		if got.Program != test.program || (err != nil) != (test.program == "") {
			t.Errorf("%s: got %q, %v; want %q", test.name, got.Program, err, test.program)
		}
	}
	if _, err := images.Find("echo:v2"); !errors.Is(err, image.ErrUnknown) {
		t.Errorf("unknown name: %v", err)
	}
	if _, err := images.Find("Not A Name"); !errors.Is(err, image.ErrInvalid) {
		t.Errorf("invalid name: %v", err)
	}
}

// TestWith: entries of the second map count where both have one.
func TestWith(t *testing.T) {
	first, err := image.New("/", image.Image{Name: "a:v1", Program: "one"}, image.Image{Prefix: "b", Program: "one"}, image.Image{Prefix: "c", Program: "one"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := image.New("/", image.Image{Name: "a:v1", Program: "two"}, image.Image{Prefix: "b", Program: "two"})
	if err != nil {
		t.Fatal(err)
	}
	both := first.With(second)
	for name, program := range map[string]string{"a:v1": "two", "b:v1": "two", "c:v1": "one"} {
		if got, err := both.Find(name); err != nil || got.Program != program {
			t.Errorf("%s: %q, %v; want %q", name, got.Program, err, program)
		}
	}
	if got, err := first.Find("a:v1"); err != nil || got.Program != "one" {
		t.Errorf("the first map has changed: %q, %v", got.Program, err)
	}
	if got, err := (image.Images{}).With(second).Find("b"); err != nil || got.Program != "two" {
		t.Errorf("an empty map with another: %q, %v", got.Program, err)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"images: [{program: a}]":             "images[0]: give either name or prefix",
		"images: [{name: a}, {name: a}]":     `images[1]: "a" occurs twice`,
		"images: [{name: a, files: {b: c}}]": `images[0].files: "b" is no absolute path`,
		"images: [{name: a, command: [c]}]":  "unknown field",
	} {
		if _, err := image.Parse([]byte(text), "/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
