// Package schema tests that package internal/api refuses the objects that an API server refuses.
//
// The CRDs in the API module are the oracle. For every constraint of every kind that the product acts on (types, required
// fields, enums, bounds, lengths, alternatives and CEL rules), the test makes documents that violate or touch only this
// constraint. It validates them with the schema validator of an API server, and compares the result with package api's,
// which may refuse more, because it checks more than the schema. testdata/differences.txt lists each difference with its reason.
// A line in it that matches no difference fails the test.
package schema
