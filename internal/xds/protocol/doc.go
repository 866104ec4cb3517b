// Package protocol is ADS, delta and State-of-the-World, as a pure state machine: one Core per stream.
//
// Events go in (a request, a newly published state, "the message is written"), actions come out (send, connect, close, report).
// It knows no gRPC stream and no goroutine, and the time only from its events, so every rule of the protocol is tested as a text
// conversation (testdata). To read it: request takes requests in, as package xds/request reads them off the wire, subscription
// says what they ask for, order decides what may be sent next, move and message make it, flight remembers what is not
// acknowledged, pending holds back what refers to that, nack and mask what a client rejected.
//
// A stream's memory is a few pointers: per type the class state it was sent and the one it acknowledged. What it is owed is
// the difference of two states, restricted to an interned subscription; the messages of such a transition are computed once
// for all streams that stand at the same point (Shared).
//
// Invariants: a resource outside the stream's class state is never sent; rejected bytes are never sent again on that
// stream; a listener or virtual host goes out only when the clusters it refers to are acknowledged, and what a proxy may
// still be using is taken away last; one response per type is in flight, or one cut sequence of them; no response of
// a type that may be cut is larger than the cut, unless a single resource is. Acknowledgements that stay away suspend
// two of these after a while: see Patience.
//
// It starts no goroutines. Of gRPC it knows the buffers of package mem, so that a message is made ready for sending once and not
// once per stream.
package protocol
