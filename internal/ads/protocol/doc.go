// Package protocol implements ADS, in the delta and State-of-the-World variants, as a pure state machine. Each stream has one Core.
//
// Events go in: a request, a newly published state, the end of a write. Actions come out: send, connect, close, reports.
// The core knows no gRPC stream and no goroutine, and it knows the time only from its events. Text conversations test its rules (testdata).
//
// The files, in the order in which to read them:
//
//   - action.go: events and actions.
//   - core.go, cursor.go: the state of a stream, and its progress in one type.
//   - request.go, subscription.go: what a request acknowledges and asks for, as package ads/request scanned it.
//   - order.go: which message may be sent next.
//   - flight.go, timer.go: unacknowledged responses, and when an acknowledgement is overdue.
//   - pending.go: which listeners and routes must wait for clusters.
//   - nack.go, suspects.go, pinning.go: which content a client rejected (package reject), and the content that it is shown instead (package overlay).
//   - split.go: virtual hosts as resources of their own.
//   - wants.go, demand.go: the types that are answered per proxy.
//
// The packages below compute values from values, and streams share their results: transition the content of messages, which response encodes; overlay and
// hold the state that a stream may see; claim the content that a client has when it connects again.
//
// A stream needs little memory. Per type it keeps pointers to the class state that the client was sent and to the one that
// it acknowledged. The next message is the difference of two states, restricted to an interned subscription. Streams
// with the same position share the messages (Shared).
//
// Invariants:
//
//   - A resource outside the stream's class state is never sent.
//   - Rejected bytes are not sent again on the stream, except to find out which content was bad (see rejections).
//   - A listener or virtual host is sent only when the clusters it refers to are acknowledged.
//   - Clusters and endpoints are removed only when listeners and routes that may refer to them are gone.
//   - Per type one response is in flight, or one sequence of responses that was split for size.
//   - No response of a type that may be split is larger than response.MaxSize, unless a single resource is.
//
// The third, fourth and fifth invariants do not wait for an acknowledgement that is overdue; see Patience.
//
// The package starts no goroutines. It uses the buffers of gRPC's package mem, so that a message is prepared once for all streams.
package protocol
