// Package resource holds xDS resources as the server sends them: encoded once, hashed once, and framed so that one
// buffer serves both protocol variants and every stream.
//
// It owns the frame layout, the version of a resource (a hash of its content, equal on every replica and after every
// restart) and the shape of a class state: per type a short list of maps of which the first one that has a name wins.
//
// Invariants: everything here is immutable once made and may be shared freely; equal content has an equal hash and
// equal bytes; the bytes handed out are never written to, by nobody.
//
// It starts no goroutines. It must not import a translator, the server, a source or the store's tables: it knows what
// an Envoy resource looks like from outside, and nothing about what a mesh is.
package resource
