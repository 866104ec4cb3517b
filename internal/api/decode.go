package api

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules"
	"github.com/pilotmesh/pilot/internal/api/rules/presence"
	"github.com/pilotmesh/pilot/internal/api/rules/shape"
)

// Document is one document of a file, or one item of a List. It is not meant to be kept: it refers to the bytes of the file.
type Document struct {
	// Key names the object. Parts that could not be read are empty.
	Key Key
	// Identified is true if Key is complete and valid, and the product acts on its kind. If Object is nil then, the document of
	// this object is invalid.
	Identified bool
	// Object is nil if the document cannot be used.
	Object *Object
	// Denying is the substitute of an access policy whose document cannot be used; nil if it needs none. It denies everything that the
	// policy is about, and is for policies without an earlier version.
	Denying *Object
	// Cut is true if there may be more objects in the document than the one that it names, because it could not be read to its end.
	Cut bool
	// Other has the document as JSON if its kind is not one of Istio's, such as a Deployment; nil for others. It has no Problems then.
	Other []byte
	// Form says whether the document is an object. If it is none, its Problems say why it cannot be used as one.
	Form Form
	// Position is the document's first line.
	Position Position
	// Problems are the problems of the document.
	Problems []Problem

	text   document.Text // the bytes of the document, to find the lines of later problems
	prefix string        // the path of an item in its List, such as items[2]; else empty
	served bool          // an API server has accepted the document
}

// Limits of a file.
const (
	// MaxFile is the size of the largest file that is read.
	MaxFile = 64 << 20
	// maxDocuments is how many documents it may have.
	maxDocuments = 1 << 17
)

// Decode reads all documents of a file: YAML documents separated by "---", JSON, and the items of Lists. Documents
// without content yield nothing. The file's name is used in positions only. The documents share data's memory.
func Decode(file string, data []byte) []Document {
	return decodeAll(file, data, false)
}

// DecodeServed decodes objects that an API server has accepted. The server's version of the API may be newer, so an unknown field
// is a warning unless it looks misspelt.
func DecodeServed(place string, data []byte) []Document {
	return decodeAll(place, data, true)
}

func decodeAll(file string, data []byte, served bool) []Document {
	texts, p := Split(file, data)
	if p != nil {
		return []Document{{Position: p.Position, Problems: []Problem{*p}}}
	}
	var docs []Document
	for _, t := range texts {
		t.served = served
		docs = append(docs, t.Decode(file)...)
	}
	return docs
}

// Text is the text of one document of a file. Equal bytes decode to documents that differ only in their positions.
type Text struct {
	text   document.Text
	served bool
}

// Split returns the texts of the documents in a file, without empty documents. It returns a Problem instead if the file
// exceeds a limit.
func Split(file string, data []byte) ([]Text, *Problem) {
	if len(data) > MaxFile {
		p := TooLarge(file, int64(len(data)))
		return nil, &p
	}
	docs := document.Split(data)
	if len(docs) > maxDocuments {
		return nil, &Problem{Position: Position{File: file}, Severity: Error, Code: "file-too-large", Reason: fmt.Sprintf(
			"the file has %d documents, the limit is %d; split it", len(docs), maxDocuments)}
	}
	out := make([]Text, len(docs))
	for i, t := range docs {
		out[i] = Text{text: t}
	}
	return out, nil
}

// Bytes returns the bytes of the text.
func (t Text) Bytes() []byte { return t.text.Data }

// Line returns the line of the file at which the text begins, from 1.
func (t Text) Line() int { return t.text.Before + 1 }

// contain turns a panic into a reason. So a bug that one document triggers affects no other document.
func contain(tell func(reason string)) {
	if p := recover(); p != nil {
		tell(fmt.Sprintf("internal error, please report it together with the document: %v", p))
	}
}

// Decode reads the document. If it is a List, it returns each of its items.
func (t Text) Decode(file string) (docs []Document) {
	defer contain(func(reason string) { docs = []Document{unreadable(file, t.text, errors.New(reason))} })
	root, err := t.text.Parse()
	switch {
	case err != nil:
		d := salvage(unreadable(file, t.text, err))
		d.Form = formOfText(t.text.Data)
		return []Document{d}
	case root == nil:
		return nil
	}
	return unfold(nil, Document{Position: Position{File: file, Line: root.Line}, text: t.text, served: t.served}, root, false)
}

// TooLarge returns the Problem of a file that is not read because of its size.
func TooLarge(file string, size int64) Problem {
	return Problem{Position: Position{File: file}, Severity: Error, Code: "file-too-large", Reason: fmt.Sprintf(
		"the file has %d bytes, the limit is %d; split it", size, MaxFile)}
}

func unreadable(file string, t document.Text, err error) Document {
	p := Problem{Position: Position{File: file, Line: t.Before + 1}, Severity: Error, Code: "syntax", Reason: err.Error()}
	if e, ok := errors.AsType[*document.SyntaxError](err); ok {
		p.Position.Line, p.Reason = e.Line, e.Reason
	}
	return Document{Position: Position{File: file, Line: t.Before + 1}, Problems: []Problem{p}, text: t}
}

// unfold appends the document, or each item of it if it is a List. Lists of lists do not exist.
func unfold(docs []Document, doc Document, root *document.Value, item bool) []Document {
	items := root.Get("items")
	if items == nil || items.Kind != document.List || item || !isList(root) {
		return append(docs, doc.decode(root))
	}
	for i, item := range items.Items {
		one := doc
		one.prefix = fmt.Sprintf("items[%d]", i)
		one.Position.Line = item.Line
		docs = unfold(docs, one, item, true)
	}
	return docs
}

// isList reports whether a document is a list of others: a List itself, or a VirtualServiceList and its like.
func isList(root *document.Value) bool {
	of, ok := strings.CutSuffix(root.Get("kind").Text(), "List")
	if !ok || of == "" {
		return ok
	}
	// A custom resource of an unknown group may be named like a list and have items of its own.
	class := kindOf(root.Get("apiVersion").Text(), of).class
	return class == ignoredKind || class == ownKind
}

// decode reads the document's envelope and spec.
func (d Document) decode(root *document.Value) Document {
	e := readEnvelope(root)
	d.Form = formOf(root)
	d.Key = e.key
	d.Identified = e.identified
	d.Cut = countOf(root, "kind") > 1
	if e.other {
		d.Other = root.JSON()
	}
	if m := e.kind.message(); m != nil {
		at, spec := (*document.Path)(nil).Field("spec"), root.Get("spec")
		switch {
		case spec == nil:
			spec = &document.Value{Line: root.Line} // null: the empty spec
		case spec.Kind == document.Null && !d.served:
			e.Fail(root.LineOf("spec"), at, "must not be null; write spec: {} for an empty one")
		}
		e.Add(document.Read(m, spec, at, d.reading()))
		if !e.Failed() {
			o := &Object{Key: e.key, Created: e.created, Labels: e.labels, Annotations: e.annotations, Healthy: e.healthy, Unhealthy: e.unhealthy, Allocated: e.allocated, Spec: m, Position: d.Position}
			if err := o.rehash(); err != nil {
				e.Fail(spec.Line, at, "%v", err)
			} else {
				d.Object = o
			}
		}
	}
	if d.Object == nil {
		d.Denying = denying(e, d.Position, selectionIn(root.Get("spec")))
	}
	d.Problems = problems(d.Key, d.Position.File, e.Findings())
	for i := range d.Problems {
		p := &d.Problems[i]
		if line, column := root.PlaceOf(p.Field); p.Field != "" && line == p.Position.Line {
			p.Position.Column = column
		}
	}
	sortByLine(d.Problems)
	d.template()
	return d
}

// reading returns how the spec of the document is read.
func (d Document) reading() document.Options {
	return document.Options{NotZero: shape.NotZero, Written: presence.Check, Newer: d.served, JSON: d.served, Strict: d.Key.GuardsAccess()}
}

// problems turns findings about one object into Problems.
func problems(key Key, file string, findings []document.Finding) []Problem {
	if len(findings) == 0 {
		return nil
	}
	out := make([]Problem, len(findings))
	for i, f := range findings {
		out[i] = Problem{Object: key, Position: Position{File: file, Line: f.Line}, Severity: Error, Code: cmp.Or(f.Code, "field-invalid"), Field: f.Field, Reason: f.Reason}
		if f.Warning {
			out[i].Severity, out[i].Code = Warning, cmp.Or(f.Code, "field-ineffective")
		}
	}
	return out
}

// Validate checks an object by the rules of its kind. If one of the Problems is an Error, the object must not be used. All
// Problems have the position of the object; Locate replaces it by the positions of their fields.
func Validate(o *Object) []Problem {
	k, ok := kindOfSpec(o.Spec)
	if !ok {
		return []Problem{{Object: o.Key, Position: o.Position, Severity: Error, Code: "kind-unknown", Field: "spec", Reason: fmt.Sprintf("objects of type %T are not known here", o.Spec)}}
	}
	found := problems(o.Key, o.Position.File, k.rule(o.Spec, about(o)))
	for i := range found {
		found[i].Position = o.Position
	}
	return found
}

// about returns the properties of an object beside its spec that its rules need.
func about(o *Object) rules.About {
	a := rules.About{
		Name: o.Name, Namespace: o.Namespace, Labels: o.Labels, Allocated: len(o.HostAddresses()) > 0,
		Distribution: o.Annotations[TrafficDistribution],
	}
	if text, ok := o.Annotations[DryRun]; ok {
		a.DryRun = &text
	}
	return a
}

// Check calls Validate and Unsupported for the object of the document, and adds their Problems, with lines, to Problems. If one of them
// is an Error, it sets Object to nil. It also releases the bytes of the file, so it is the last step of reading a document.
func (d *Document) Check() {
	defer func() { d.text = document.Text{} }()
	defer contain(func(reason string) {
		d.refuse()
		d.Problems = append(d.Problems, Problem{Object: d.Key, Position: d.Position, Severity: Error, Code: "internal-error", Reason: reason})
	})
	if d.Object == nil {
		return
	}
	found := Validate(d.Object)
	failed := Failed(found)
	if !failed { // for an object that is not used, unsupported fields do not matter
		found = append(found, Unsupported(d.Object)...)
	}
	d.locate(found)
	if failed {
		d.refuse()
	}
	d.Problems = append(d.Problems, found...)
	sortByLine(d.Problems)
	d.template()
}

// refuse makes the object of the document unusable.
func (d *Document) refuse() {
	if o := d.Object; o != nil {
		e := &envelope{key: o.Key, labels: o.Labels, created: o.Created, annotations: o.Annotations, identified: true}
		d.Denying = denying(e, d.Position, selectionOf(o.Spec))
	}
	d.Object = nil
}

// sortByLine sorts problems by line, and keeps the order of those on the same line.
func sortByLine(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Position.Compare(b.Position) })
}

// Locate sets the lines of problems that were found later about the document's object.
func (d *Document) Locate(problems []Problem) { d.locate(problems) }

// locate sets the lines of problems. It parses the text again, because few documents have problems, and keeping the parsed form
// of all documents would cost more.
func (d *Document) locate(problems []Problem) {
	if len(problems) == 0 {
		return
	}
	root, err := d.text.Parse()
	if err != nil || root == nil {
		return
	}
	for i := range problems {
		field := problems[i].Field
		if d.prefix != "" {
			field = d.prefix + "." + field
		}
		line, column := root.PlaceOf(field)
		if problems[i].Field == "" {
			column = 0
		}
		problems[i].Position = Position{File: d.Position.File, Line: line, Column: column}
	}
}

// ShiftLines returns a checked document for a text that has moved down in its file by a number of lines, or up if it is negative.
func (d Document) ShiftLines(lines int) Document {
	if lines == 0 {
		return d
	}
	d.Position.Line += lines
	d.Problems = slices.Clone(d.Problems)
	for i := range d.Problems {
		if d.Problems[i].Position.Line > 0 {
			d.Problems[i].Position.Line += lines
		}
	}
	if d.Object != nil {
		o := *d.Object
		o.Position.Line += lines
		d.Object = &o
	}
	if d.Denying != nil {
		o := *d.Denying
		o.Position.Line += lines
		d.Denying = &o
	}
	return d
}
