// Package capture holds the tests of traffic capture: which process receives a connection, and the addresses that it sees. README.md describes them.
package capture
