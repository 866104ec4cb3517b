// Package manifests holds the Helm charts, so that a program can install them without further files. The charts under charts are used by Helm as
// well. The package starts no goroutines.
package manifests

import "embed"

// Charts has the charts, each in a folder of its name under charts.
//
//go:embed all:charts
var Charts embed.FS
