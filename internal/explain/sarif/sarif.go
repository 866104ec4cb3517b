// Package sarif writes the Problems of an analysis as a log of SARIF 2.1.0, which code hosts and editors show beside the text of files.
//
// It owns the form of the log: one rule per code of package code, and one result per Problem. A result keeps its fingerprint when lines move or the text
// of a message changes, so that a reader recognises a Problem that it has seen. The package reads no files and starts no goroutines.
package sarif

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
)

const (
	schema  = "https://json.schemastore.org/sarif-2.1.0.json"
	project = "https://github.com/pilotmesh/pilot"
	pages   = project + "/blob/main/doc/problems/"
	// fingerprint is the name of the fingerprints. A change of how they are made needs another one.
	fingerprint = "problem/v1"
)

// Log is a log of SARIF with one run.
type Log struct {
	Schema  string `json:"$schema"`
	Version string `json:"version"`
	Runs    []Run  `json:"runs"`
}

// Run is one analysis.
type Run struct {
	Tool    Tool     `json:"tool"`
	Results []Result `json:"results"`
}

// Tool names the program.
type Tool struct {
	Driver Driver `json:"driver"`
}

// Driver is the program, with all its rules.
type Driver struct {
	Name           string `json:"name"`
	Version        string `json:"version,omitempty"`
	InformationURI string `json:"informationUri"`
	Rules          []Rule `json:"rules"`
}

// Rule describes a code.
type Rule struct {
	ID            code.Code     `json:"id"`
	Short         Message       `json:"shortDescription"`
	Help          Message       `json:"help"`
	HelpURI       string        `json:"helpUri"`
	Configuration Configuration `json:"defaultConfiguration"`
}

// Configuration has the level of the results of a rule, if they do not have another.
type Configuration struct {
	Level string `json:"level"`
}

// Message is a text.
type Message struct {
	Text string `json:"text"`
}

// Result is a Problem.
type Result struct {
	RuleID       code.Code         `json:"ruleId"`
	RuleIndex    int               `json:"ruleIndex"`
	Level        string            `json:"level"`
	Message      Message           `json:"message"`
	Locations    []Location        `json:"locations,omitempty"`
	Fingerprints map[string]string `json:"partialFingerprints"`
}

// Location is where the Problem is: in a file, in an object, or both.
type Location struct {
	Physical *Physical `json:"physicalLocation,omitempty"`
	Logical  []Logical `json:"logicalLocations,omitempty"`
}

// Physical is a place in a file.
type Physical struct {
	Artifact Artifact `json:"artifactLocation"`
	Region   *Region  `json:"region,omitempty"`
}

// Artifact names a file.
type Artifact struct {
	URI string `json:"uri"`
}

// Region is a line, and a column if it is known.
type Region struct {
	StartLine   int `json:"startLine"`
	StartColumn int `json:"startColumn,omitempty"`
}

// Logical is a field of an object.
type Logical struct {
	Name string `json:"fullyQualifiedName"`
	Kind string `json:"kind,omitempty"`
}

// New returns the log of Problems. version is the version of the program.
func New(version string, problems []api.Problem) Log {
	driver := Driver{Name: "pilotctl analyze", Version: version, InformationURI: project}
	index := map[code.Code]int{}
	for i, e := range code.All() {
		index[e.Code] = i
		driver.Rules = append(driver.Rules, Rule{
			ID: e.Code, Short: Message{e.Meaning}, Help: Message{e.Meaning + " " + e.Remedy}, HelpURI: pages + string(e.Code) + ".md",
			Configuration: Configuration{defaultLevel(e.Level)},
		})
	}
	results, seen := make([]Result, 0, len(problems)), map[string]int{}
	for _, p := range problems {
		id := identity(p)
		seen[id]++
		results = append(results, Result{
			RuleID: p.Code, RuleIndex: index[p.Code], Level: level(p.Severity), Message: Message{message(p)}, Locations: locations(p),
			Fingerprints: map[string]string{fingerprint: fmt.Sprintf("%s:%d", id, seen[id])},
		})
	}
	return Log{Schema: schema, Version: "2.1.0", Runs: []Run{{Tool{driver}, results}}}
}

// identity is equal for Problems of one kind with one field of an object, or with one file that has no object.
func identity(p api.Problem) string {
	parts := []string{string(p.Code), p.Object.String(), p.Object.Cluster, p.Field}
	if p.Object == (api.Key{}) {
		parts = append(parts, filepath.ToSlash(p.Position.File))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// message is the text of a Problem, without its position and level.
func message(p api.Problem) string {
	p.Position, p.Severity = api.Position{}, api.Error
	return strings.TrimPrefix(p.String(), "error: ")
}

func locations(p api.Problem) []Location {
	var l Location
	if p.Position.File != "" {
		l.Physical = &Physical{Artifact: Artifact{uri(p.Position.File)}}
		if p.Position.Line > 0 {
			l.Physical.Region = &Region{p.Position.Line, p.Position.Column}
		}
	}
	if object := p.Object.String(); object != "" {
		l.Logical = []Logical{{strings.TrimSuffix(object+": "+p.Field, ": "), "object"}}
	}
	if l.Physical == nil && l.Logical == nil {
		return nil
	}
	return []Location{l}
}

// uri returns the name of a file as a reference: relative to the working directory, as the name is, or absolute.
func uri(file string) string {
	u := url.URL{Path: filepath.ToSlash(file)}
	if filepath.IsAbs(file) {
		u.Scheme = "file"
	}
	return u.String()
}

func level(s api.Severity) string {
	switch s {
	case api.Error:
		return "error"
	case api.Warning:
		return "warning"
	}
	return "note"
}

func defaultLevel(l code.Level) string {
	switch l {
	case code.Info:
		return "note"
	case code.Warning:
		return "warning"
	}
	return "error"
}
