// Package api owns the user's objects: what a configuration document says, whether it may be used, and what of it
// the product does not do (yet).
//
// A document passes three gates. [Decode] reads it strictly: an unknown field, a wrong type or a duplicate key is a
// [Problem] that names file, line and field. An unknown field that looks like no known one may be newer than the API
// module, and only warns. [Validate] judges the decoded object by the rules of its kind.
// [Unsupported] names every field that is legal but ignored, so that nothing a user wrote is dropped in silence.
//
// Invariants:
//   - An [Object] is immutable once it left this package. Its Hash covers everything translation may read and nothing
//     else: two documents that differ in comments, key order, place or annotations without a meaning have equal hashes.
//   - No input makes these functions panic or take more than bounded time and memory: documents, depth and alias
//     expansion are limited before anything is built from them.
//   - A bad document costs only itself: the other documents of its file are read all the same.
//
// The package is pure: no goroutines, files, clocks or logs. It must not import sources, the store, views or Envoy's
// protos.
package api

import (
	"strconv"
	"strings"
)

// DefaultNamespace is where an object lives whose metadata names no namespace.
const DefaultNamespace = "default"

// Key names an object. Keys are ordered by kind, namespace and name.
type Key struct{ Kind, Namespace, Name string }

// Compare orders keys by kind, then namespace, then name.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Kind, o.Kind); c != 0 {
		return c
	}
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

// AppendTo appends an unambiguous form of the key: no part can hold the zero byte that separates them.
func (k Key) AppendTo(b []byte) []byte {
	b = append(b, k.Kind...)
	b = append(b, 0)
	b = append(b, k.Namespace...)
	b = append(b, 0)
	return append(b, k.Name...)
}

// String is "Kind namespace/name", with what is unknown left out.
func (k Key) String() string {
	name := k.Name
	if k.Namespace != "" && name != "" {
		name = k.Namespace + "/" + name
	}
	return strings.TrimSpace(k.Kind + " " + name)
}

// Position is a place in a file. Line counts from 1; 0 means the file as a whole.
type Position struct {
	File string
	Line int
}

// String is "file:line", or only the file where the line is not known.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Compare orders positions by file, then line.
func (p Position) Compare(o Position) int {
	if c := strings.Compare(p.File, o.File); c != 0 {
		return c
	}
	return p.Line - o.Line
}
