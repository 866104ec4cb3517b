// Package sandbox does the Linux work of a node: a bridge, network namespaces, private roots, processes. It knows nothing of
// Kubernetes; it is given addresses, paths, arguments and identities, and reports when a process ends.
//
// Everything it makes dies with the process that made it, whatever happens to that: namespaces have no names and live by open
// descriptors, mounts hang only in the namespaces of containers, the kernel kills containers when their parent's thread
// ends. Only the bridge, cgroups and plain files outlive a crash; Open removes what an earlier life left.
//
// Namespaces belong to threads. A Host has two threads of its own, one that makes namespaces and one that starts
// processes; everything else runs anywhere. Each running process has one goroutine that waits for its end without
// occupying a thread; Pod.Close waits for all of them.
package sandbox
