// Package why answers questions about one proxy: what a resource of the proxy was made of, and why the proxy does not
// have something else.
//
// It owns the wording of answers, whose form is in package reply, and decides nothing. Served resources are read from the state of the
// proxy's class. Their sources follow from the reads that the graph recorded. Why something is missing follows
// from the same queries that left it out, evaluated at the present revision by a reader that records nothing. An answer
// therefore agrees with the served resources, and nothing is kept for answers.
//
// Ask must be called by the owner of the graph, between commits. It is quick: work that grows with the mesh is left to
// Complete of the answer, which may run on any goroutine. The package starts no goroutines.
package why
