// Package schema holds a test of package internal/api: what an API server would refuse is refused offline, too.
//
// The CRDs that the API module ships are the oracle. The test takes every constraint of every kind that the product acts on
// (types, required fields, enums, bounds, lengths, alternatives and CEL rules), makes documents that touch only that one,
// asks the schema validator of an API server, and demands the same verdict of package api. The schema is not all that an
// object must obey, so package api may refuse more; each difference stands with its reason in testdata/differences.txt,
// which must have no line without use.
package schema
