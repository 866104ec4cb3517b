// Package mesh puts Pilot on a test cluster, and on it the bookstore with a sidecar in every pod: pilot-discovery as a pod with
// the account of manifests/rbac.yaml, and real Envoys under pilot-agent.
//
// Manifests define what runs: the manifests of test/cluster/samples and the configuration of samples/bookstore. Everything is
// applied by the cluster's kubectl, as a user would. The package starts no goroutines.
package mesh
