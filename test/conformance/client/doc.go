// Package client is an xDS client for tests: one ADS stream, delta or State-of-the-World, and what a proxy at its end
// would know.
//
// A Client keeps the resources received by type and name, answers every response as its Policy says, and judges each response: what a server may
// never do, whatever the test is about, is written down as a Fault (see Checker and the methods in judge.go). With Follow it behaves as Envoy does:
// it asks for the assignments its clusters want and the routes its listeners name, and minds that no route ever points at a cluster it does not have.
//
// A Client belongs to one goroutine. Responses are received by a goroutine of its own, and processed only when its
// owner calls Next or Await: so a test decides what a client has seen. Wire is an HTTP/2 connection for clients that
// misbehave below gRPC. The package knows nothing of the server but the protocol.
package client
