package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules"
)

// Document is one document of a file, or one item of a List. It is for passing on what was read, not for keeping.
type Document struct {
	// Key is what the document names, as far as that could be read: for a broken document it may be empty in parts.
	Key Key
	// Identified says that Key is whole and well-formed and of a kind that is handled here: if Object is nil all the
	// same, then it is this object whose document is broken.
	Identified bool
	// Object is nil if the document cannot be used.
	Object *Object
	// Position is the document's first line.
	Position Position
	// Problems of decoding.
	Problems []Problem

	text   document.Text // the document's bytes, for lines of later findings
	prefix string        // where in them an item of a List stands
}

// Limits of a file.
const (
	// MaxFile is the size of the largest file that is read.
	MaxFile = 64 << 20
	// MaxDocuments is how many documents it may have.
	MaxDocuments = 1 << 17
)

// Decode reads all documents of a file: YAML documents separated by "---", JSON, and the items of Lists. Documents
// without content yield nothing. The file's name is used in positions only. The documents share data's memory.
func Decode(file string, data []byte) []Document {
	texts, p := Split(file, data)
	if p != nil {
		return []Document{{Position: p.Position, Problems: []Problem{*p}}}
	}
	var docs []Document
	for _, t := range texts {
		docs = append(docs, t.Decode(file)...)
	}
	return docs
}

// Text is one document of a file before it is read. Equal bytes decode to equal documents, wherever they stand.
type Text struct{ text document.Text }

// Split cuts a file into the texts of its documents, without those that have no content. A file beyond the limits has
// none, but a Problem.
func Split(file string, data []byte) ([]Text, *Problem) {
	if len(data) > MaxFile {
		p := TooLarge(file, int64(len(data)))
		return nil, &p
	}
	docs := document.Split(data)
	if len(docs) > MaxDocuments {
		return nil, &Problem{Position: Position{File: file}, Severity: Error, Reason: fmt.Sprintf(
			"the file has %d documents, the limit is %d; split it", len(docs), MaxDocuments)}
	}
	out := make([]Text, len(docs))
	for i, t := range docs {
		out[i] = Text{t}
	}
	return out, nil
}

// Bytes are the text's bytes.
func (t Text) Bytes() []byte { return t.text.Data }

// Line is the line of the file at which the text begins.
func (t Text) Line() int { return t.text.Before + 1 }

// contain makes a panic a reason: a bug in reading or judging one document costs that document, and no other.
func contain(tell func(reason string)) {
	if p := recover(); p != nil {
		tell(fmt.Sprintf("internal error, please report it together with the document: %v", p))
	}
}

// Decode reads the document; several, if it is a List.
func (t Text) Decode(file string) (docs []Document) {
	defer contain(func(reason string) { docs = []Document{unreadable(file, t.text, errors.New(reason))} })
	root, err := t.text.Parse()
	switch {
	case err != nil:
		return []Document{unreadable(file, t.text, err)}
	case root == nil:
		return nil
	}
	return unfold(nil, Document{Position: Position{File: file, Line: root.Line}, text: t.text}, root, false)
}

// TooLarge is the Problem of a file that is not read for its size.
func TooLarge(file string, size int64) Problem {
	return Problem{Position: Position{File: file}, Severity: Error, Reason: fmt.Sprintf(
		"the file has %d bytes, the limit is %d; split it", size, MaxFile)}
}

func unreadable(file string, t document.Text, err error) Document {
	p := Problem{Position: Position{File: file, Line: t.Before + 1}, Severity: Error, Reason: err.Error()}
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
	d.Key = e.key
	d.Identified = e.identified
	if m := e.kind.message(); m != nil {
		spec := root.Get("spec")
		if spec == nil {
			spec = &document.Value{Line: root.Line} // null: the empty spec
		}
		e.Add(document.Read(m, spec, (*document.Path)(nil).Field("spec"), document.Options{NotZero: rules.NotZero}))
		if !e.Failed() {
			o := &Object{Key: e.key, Created: e.created, Labels: e.labels, Annotations: e.annotations, Healthy: e.healthy, Allocated: e.allocated, Spec: m, Position: d.Position}
			if err := o.rehash(); err != nil {
				e.Fail(spec.Line, (*document.Path)(nil).Field("spec"), "%v", err)
			} else {
				d.Object = o
			}
		}
	}
	d.Problems = problems(d.Key, d.Position.File, e.Findings())
	sortByLine(d.Problems)
	return d
}

// problems makes findings about one object the user's Problems.
func problems(key Key, file string, findings []document.Finding) []Problem {
	if len(findings) == 0 {
		return nil
	}
	out := make([]Problem, len(findings))
	for i, f := range findings {
		out[i] = Problem{Object: key, Position: Position{File: file, Line: f.Line}, Severity: Error, Field: f.Field, Reason: f.Reason}
		if f.Warning {
			out[i].Severity = Warning
		}
	}
	return out
}

// Validate judges an object by the rules of its kind. With an Error the object must not be used; with Warnings it can.
// The Problems stand where the object does; see Locate.
func Validate(o *Object) []Problem {
	k, ok := kindOfSpec(o.Spec)
	if !ok {
		return []Problem{{Object: o.Key, Position: o.Position, Severity: Error, Field: "spec", Reason: fmt.Sprintf("objects of type %T are not known here", o.Spec)}}
	}
	found := problems(o.Key, o.Position.File, k.rule(o.Spec, rules.About{
		Namespace: o.Namespace, Labels: o.Labels, Allocated: len(o.HostAddresses()) > 0, Distribution: o.Annotations[TrafficDistribution],
	}))
	for i := range found {
		found[i].Position = o.Position
	}
	return found
}

// Check puts a decoded object through Validate and Unsupported and adds what they find, with its lines, to the
// document's Problems. With an Error among them the document has no Object any more. It ends a document's making: the
// memory of the file's bytes is let go.
func (d *Document) Check() {
	defer func() { d.text = document.Text{} }()
	defer contain(func(reason string) {
		d.Object = nil
		d.Problems = append(d.Problems, Problem{Object: d.Key, Position: d.Position, Severity: Error, Reason: reason})
	})
	if d.Object == nil {
		return
	}
	found := Validate(d.Object)
	failed := Failed(found)
	if !failed { // of what is not used at all, nobody needs to know what part would not be
		found = append(found, Unsupported(d.Object)...)
	}
	d.locate(found)
	if failed {
		d.Object = nil
	}
	d.Problems = append(d.Problems, found...)
	sortByLine(d.Problems)
}

// sortByLine brings problems into the order of the document. On one line they stay as they are.
func sortByLine(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Position.Compare(b.Position) })
}

// Locate sets the lines of problems that were found later about the document's object.
func (d *Document) Locate(problems []Problem) { d.locate(problems) }

// locate sets the lines of problems. It parses the text once more: few documents have problems, and keeping the parsed
// form of all for them would cost more.
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
		problems[i].Position = Position{File: d.Position.File, Line: root.LineOf(field)}
	}
}

// Moved is a checked document as it is where its text stands some lines further down (or up) in its file.
func (d Document) Moved(lines int) Document {
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
	return d
}
