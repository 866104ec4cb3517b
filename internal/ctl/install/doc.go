// Package install puts the control plane on a cluster, and removes it again. It renders the charts of manifests/charts as Helm does,
// applies the objects by server-side apply, and records its objects and values in a Secret of the control plane's namespace.
//
// Invariants: an object that another tool has made is neither changed nor deleted: all objects of this package have the label
// app.kubernetes.io/managed-by=pilotctl, and an object without it has another owner. The record lists objects before they are made, and
// is deleted after them, so that the next call completes one that was interrupted. Values are checked before anything is written.
//
// The charts are data, and rendering them is pure: it reads no cluster. Goroutines: the package starts none.
package install
