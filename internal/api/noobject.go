package api

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// Form says whether a document is an object.
type Form uint8

// The forms.
const (
	// AnObject is an object of Kubernetes, or a document that should be one.
	AnObject Form = iota
	// NoObject is anything else, such as a package.json or the values of a Helm chart.
	NoObject
	// ATemplate is an object to be, whose text has actions of Go templates and cannot be used before these are carried out.
	ATemplate
)

// formOf returns the form of a well-formed document. One that has a kind and an apiVersion is an object, and one should be that has either
// from the mesh's configuration, or metadata and a spec. A list of these should be objects, too.
func formOf(root *document.Value) Form {
	version, name := root.Get("apiVersion").Text(), root.Get("kind").Text()
	groupName, _, _ := strings.Cut(version, "/")
	switch {
	case root.Kind == document.List && len(root.Items) > 0 && root.Items[0].Kind == document.Mapping:
		return formOf(root.Items[0]) // a list of objects, which no object is
	case root.Kind != document.Mapping:
		return NoObject
	case strings.Contains(root.Get("metadata").Get("name").Text(), "{{"):
		return ATemplate
	case name != "" && version != "", root.Get("metadata") != nil && root.Get("spec") != nil, isMeshKind(name):
		return AnObject
	case slices.ContainsFunc(groups(), func(g group) bool { return g.name == groupName }):
		return AnObject
	}
	return NoObject
}

// isMeshKind reports whether the mesh's configuration has a kind with a name.
func isMeshKind(name string) bool {
	return slices.ContainsFunc(groups(), func(g group) bool { return slices.Contains(g.kinds, name) || slices.Contains(g.later, name) })
}

// formOfText returns the form of a document that is not well-formed.
func formOfText(text []byte) Form {
	switch {
	case hasAction(text):
		return ATemplate
	case bytes.Contains(text, []byte("apiVersion")), bytes.Contains(text, []byte("kind:")):
		return AnObject
	}
	for _, g := range groups() {
		for _, name := range slices.Concat(g.kinds, g.later) {
			if bytes.Contains(text, []byte(name)) {
				return AnObject
			}
		}
	}
	return NoObject
}

// hasAction reports whether a text has an action of a Go template: two braces, and then a variable, a string, a comment or a usual
// function. Lua and other languages have two braces, too.
func hasAction(text []byte) bool {
	for {
		_, rest, found := bytes.Cut(text, []byte("{{"))
		if !found {
			return false
		}
		text = rest
		action := bytes.TrimLeft(bytes.TrimPrefix(rest, []byte("-")), " \t")
		word := string(action[:len(action)-len(bytes.TrimLeft(action, "abcdefghijklmnopqrstuvwxyzJY"))])
		switch {
		case len(action) > 0 && strings.ContainsRune(".$(`", rune(action[0])), bytes.HasPrefix(action, []byte("/*")):
			return true
		case slices.Contains([]string{"if", "else", "end", "range", "with", "define", "template", "block", "include", "tpl", "toYaml", "toJson",
			"printf", "quote", "default", "required", "lookup", "fail", "and", "or", "not", "eq", "ne"}, word):
			return true
		}
	}
}

// template makes a refused document a template if its text has actions of templates.
func (d *Document) template() {
	if d.Form == AnObject && Failed(d.Problems) && hasAction(d.text.Data) {
		d.Form = ATemplate
	}
}

// HasObject reports whether one of the documents of a file is an object, or should be one. Then the other documents should be, too.
func HasObject(docs []Document) bool {
	return slices.ContainsFunc(docs, func(d Document) bool { return d.Form == AnObject })
}

// Aside reports whether a document that is no object is no mistake either. hasObject is the result of HasObject for its file.
func (d *Document) Aside(hasObject bool) bool {
	return d.Form == ATemplate || d.Form == NoObject && !hasObject
}

// chartFile is the name of the file that every Helm chart has.
const chartFile = "Chart.yaml"

// Remark returns the one Problem of a file in place of the problems of its documents that are Aside. form is the form of one of these.
func Remark(file string, form Form) Problem {
	reason := "has no objects of Kubernetes, and is not read"
	switch {
	case filepath.Base(file) == chartFile:
		reason = fmt.Sprintf("%s is a Helm chart, whose templates are not read; pass what helm template prints", filepath.Dir(file))
	case form == ATemplate:
		reason = "has a template, which is not read before it is rendered"
	}
	return Problem{Position: Position{File: file}, Severity: Info, Code: "file-no-object", Reason: reason}
}

// MergeRemarks leaves out the remarks about the files of Helm charts, except for one for each chart that is in no other.
func MergeRemarks(problems []Problem) []Problem {
	var charts []string
	for _, p := range problems {
		if p.Code == "file-no-object" && filepath.Base(p.Position.File) == chartFile {
			charts = append(charts, filepath.Dir(p.Position.File))
		}
	}
	if len(charts) == 0 {
		return problems
	}
	return slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool {
		return p.Code == "file-no-object" && slices.ContainsFunc(charts, func(dir string) bool {
			rest, err := filepath.Rel(dir, p.Position.File)
			return err == nil && filepath.IsLocal(rest) && rest != chartFile
		})
	})
}
