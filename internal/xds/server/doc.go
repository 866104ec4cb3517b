// Package server serves ADS over gRPC: it moves bytes between clients and the state machines of package protocol.
//
// Per stream the gRPC handler goroutine receives. Server.Run owns the goroutines all streams share: the workers that let cores
// take in requests and published states, and the sweeper that closes streams whose write is stuck. Workers write what gRPC
// takes without asking the client; for what may have to wait a stream has one goroutine, as long as there is something.
//
// Invariants: nobody waits for anybody: publishing never blocks, a silent reader costs its pointers. One goroutine at a time
// steps a core. Few streams write a big message at a time (package gate).
//
// It must not import translators, views, queries, sources or Kubernetes: it is handed finished states.
package server
