// Package conformance holds the xDS rules that pilot-discovery is held to, as a black box sees them: each test starts
// from a directory of configuration, edits its files while streams are open, and plays a proxy, well-behaved or not.
//
// # How it is built
//
// A rule is one row of its family's table (first_test.go holds the family "first", and so on) and becomes one test per
// protocol variant: TestProtocol/order/make-before-break/delta. Rules marked wish are good manners rather than
// demands; they fail like all others, unless gaps says why they may.
//
// A rule is a function of a scene: a namespace with a few services in it (scene_test.go), in a control plane that is shared
// with other tests or, if the rule disturbs others, its own. Peers (peer_test.go) are the clients of a scene. What a server
// may never do is checked of every response in every test; see package client.
//
// # Waiting
//
// Tests wait for conditions, with a deadline. That nothing is sent is shown by a fence: a change of all four types
// that is made afterwards, and whose every part must arrive alone. Nothing sleeps; timers are only for time that must pass because the rule is about
// time.
package conformance
