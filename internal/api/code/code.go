// Package code names each kind of Problem by a short identifier, which stays the same from release to release, so that scripts, alerts
// and searches can rely on it. It owns the list of codes with their meaning and remedy; doc/problems.md is made of it, and doc/problems has a page per code. Tests keep
// the list, the page and the places that raise Problems in agreement.
//
// It is pure and starts no goroutines.
package code

import (
	"fmt"
	"slices"
	"strings"
)

// Code identifies a kind of Problem: route-no-subset.
type Code string

// Level says which severities the Problems of a code have.
type Level string

// The levels. Info is for remarks, which are no mistakes. Either is for codes whose Problems are errors or warnings, case by case.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Info    Level = "info"
	Either  Level = "error or warning"
)

// Entry describes a code.
type Entry struct {
	Code  Code  `json:"code"`
	Level Level `json:"level"`
	// Meaning explains the problem and its consequences. Remedy says what to do.
	Meaning string `json:"meaning"`
	Remedy  string `json:"remedy"`
}

// All returns all codes in alphabetical order.
func All() []Entry {
	var all []Entry
	for _, part := range [][]Entry{documents(), sources(), hosts(), routes(), policies(), clusters(), registries(), running()} {
		all = append(all, part...)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(string(a.Code), string(b.Code)) })
	return all
}

// Find returns the description of a code.
func Find(c Code) (Entry, bool) {
	for _, e := range All() {
		if e.Code == c {
			return e, true
		}
	}
	return Entry{}, false
}

// markdown returns the rows of a table of all codes.
func markdown() string {
	var b strings.Builder
	b.WriteString("| Code | Level | Meaning | Remedy |\n|---|---|---|---|\n")
	for _, e := range All() {
		fmt.Fprintf(&b, "| [`%[1]s`](problems/%[1]s.md) | %[2]s | %[3]s | %[4]s |\n", e.Code, e.Level, e.Meaning, e.Remedy)
	}
	return b.String()
}
