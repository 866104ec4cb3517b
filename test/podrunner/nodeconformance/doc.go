// Package nodeconformance is Kubernetes' own tests of nodes, built from the module proxy and run against podrunner. README.md describes how; the
// result is in ../nodeconformance.md.
package nodeconformance
