// Package api reads the objects that users write. It checks whether they are valid, and which of their fields have no effect.
//
// There are three steps. [Decode] parses a document and reads its fields as an API server does with the schemas of Istio: a field of
// a wrong type, a duplicate key, null, and an unknown field are errors. [DecodeServed] reads objects that an API server has accepted; there
// an unknown field is a warning unless it looks misspelt or is in an access policy ([Key.GuardsAccess]), because the server's schemas may be
// newer than the API module. [Validate] checks the object by the rules of its kind. Decode does that itself for the kinds that the product
// does not act on. [Unsupported] warns of every valid field that the product does not act on, so that no setting is ignored without a
// [Problem]. A Problem names the file, line and field.
//
// Invariants:
//   - An [Object] is immutable after it was returned. Its Hash covers everything that translation may read and nothing else:
//     documents that differ only in comments, in the order of keys, in their place in the file, or in annotations that the
//     product does not read, have equal hashes.
//   - No input makes these functions panic, and the size and depth of documents and the expansion of YAML aliases are limited,
//     so time and memory are bounded.
//   - An invalid document does not affect the other documents of its file.
//
// It exports more than 60 names, because all readers of objects share its vocabulary of kinds, keys, positions and Problems.
//
// The package is pure: it has no goroutines, reads no files and no clock, and does not log.
package api

import (
	"strconv"
	"strings"
)

// DefaultNamespace is the namespace of an object whose metadata has none.
const DefaultNamespace = "default"

// Key names an object. Keys are ordered by kind, namespace, name and cluster.
type Key struct {
	Kind, Namespace, Name string
	// Cluster is the cluster of an object of a service registry, such as a Service or a Pod. It is empty for configuration, which
	// exists once for all clusters.
	Cluster string
}

// KindRegistryService is the kind of services of registries outside Kubernetes. The cluster of such a key is the name of the registry.
const KindRegistryService = "RegistryService"

// Compare orders keys by kind, then namespace, then name, then cluster.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Kind, o.Kind); c != 0 {
		return c
	}
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(k.Name, o.Name); c != 0 {
		return c
	}
	return strings.Compare(k.Cluster, o.Cluster)
}

// AppendTo appends a form of the key that no other key has. Its parts are separated by zero bytes, which no part contains.
func (k Key) AppendTo(b []byte) []byte {
	b = append(b, k.Kind...)
	b = append(b, 0)
	b = append(b, k.Namespace...)
	b = append(b, 0)
	b = append(b, k.Name...)
	if k.Cluster == "" {
		return b
	}
	b = append(b, 0)
	return append(b, k.Cluster...)
}

// String returns "Kind namespace/name in cluster name" without the parts that are empty.
func (k Key) String() string {
	name := k.Name
	if k.Namespace != "" && name != "" {
		name = k.Namespace + "/" + name
	}
	switch {
	case k.Kind == KindRegistryService && k.Cluster != "":
		name = strings.TrimSpace(name + " of registry " + k.Cluster)
	case k.Cluster != "":
		name += " in cluster " + k.Cluster
	}
	return strings.TrimSpace(k.Kind + " " + name)
}

// Position is a place in a file. Lines count from 1; line 0 means the whole file.
type Position struct {
	File string
	Line int
	// Column is the place in the line, from 1. It is known of fields in YAML, and 0 otherwise.
	Column int
	// Generation is the version of the object that was read (metadata.generation). It is 0 for objects of files.
	Generation int64
}

// String returns "file:line", or only the file if Line is 0.
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
