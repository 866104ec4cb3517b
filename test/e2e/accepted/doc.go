// Package accepted tests that real Envoys load whatever configuration Pilot accepts.
//
// The test draws objects of every kind from the descriptors of their messages, checks them as `pilotctl analyze` and the
// webhook do, and keeps the accepted ones. A control plane in this process serves them to real Envoys: sidecars and a gateway, with delta and with
// State-of-the-World. A mesh replaces the one before it in place, so the moves between meshes are tested, too.
//
// Envoy alone can judge some patches of EnvoyFilters, so a mesh with an EnvoyFilter may be rejected, and must not fail otherwise.
//
// A mesh fails the test if an Envoy rejects a resource or ends, if a translation has a fault, or if an Envoy does not
// acknowledge the configuration. Then the test removes objects and fields for as long as the failure stays, and prints the rest.
//
// A number determines a mesh. The flags -rapid.checks (the number of meshes) and -rapid.seed (the number of the first) have the meaning that they have
// in tests of package rapid, so that scripts/soak.sh can run this test, too. Without the first flag there are 100 meshes, as many as are loaded in half a minute.
//
// The Envoys run in network namespaces of their own, because they listen on all ports that the configuration names. So the test needs root.
package accepted
