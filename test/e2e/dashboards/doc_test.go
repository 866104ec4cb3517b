// Package dashboards tests that the queries of Istio's dashboards and of Kiali have answers here: two real Envoys under pilot-agent, with mutual TLS
// between them, serve requests of each kind, and the query engine of Prometheus (test/prometheus) answers the queries of testdata/queries.txt from
// the scrapes of both agents and of the control plane.
//
// The times of the scrapes are chosen, 15 seconds apart, so that no test waits for them and rates are known numbers.
package dashboards
