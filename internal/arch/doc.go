// Package arch holds the tests that keep the architecture true: who may import whom, how large things may grow, and
// what is banned. `make arch` runs it alone.
//
// The rules are the tables in rules_test.go; a package that stands in no table fails, so that whoever adds one decides
// where it belongs. The package has no code of its own, starts no goroutines, and must not be imported.
package arch
