// Package capture holds the tests of traffic capture: who receives a connection, and what it sees. README.md tells how.
package capture
