// Package resource holds xDS resources as the server sends them. A resource is encoded once and hashed once, and its frame
// lets one buffer serve both protocol variants and every stream.
//
// The package owns the layout of the frame, the version of a resource and the form of a class state. A version is a hash
// of the content, so it is equal on every replica and after every restart. A class state has, per type, a short list of
// maps; the first map that contains a name wins.
//
// Invariants: All values are immutable once made and may be shared. Equal content has an equal hash and equal bytes.
// Callers must not write to the bytes that the package returns.
//
// The package starts no goroutines. It knows the form of Envoy resources and nothing about a mesh.
package resource
