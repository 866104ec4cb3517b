// Package arch holds the tests of the architecture: which package may import which, how large things may grow, and
// which names and calls are banned. `make arch` runs it alone.
//
// The rules are the tables in rules_test.go; a package that is in no table fails, so that the author of a new one
// decides where it belongs. The package has no code of its own, starts no goroutines, and must not be imported.
package arch
