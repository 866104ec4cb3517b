// Package server serves ADS over gRPC: it moves bytes between clients and the state machines of package protocol.
//
// For each stream the gRPC handler goroutine receives requests. Server.Run owns the goroutines that all streams share: the
// workers, which pass requests and published states to the cores, and the sweeper, which closes streams whose client does not
// read. Workers write small messages for which gRPC has room whatever the client does. For a message that may have to wait
// for the client, the stream starts a goroutine that ends with the write.
//
// Invariants: Publishing never blocks, and a client that does not read costs only memory for a few pointers. One goroutine at
// a time steps a core. Only a few streams at a time write a big message (package gate).
package server
