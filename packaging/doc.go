// Command packaging makes what a release consists of.
//
//	packaging deb      the Debian package of the agent for virtual machines
//	packaging release  everything: archives, Debian packages, images, lists of their contents, and checksums
//	packaging pin      packaging/debian/list.txt, from what Debian has today
//
// Every file of a release follows from the commit, the version and the pinned inputs: the time is the commit time, and no path, name or order of
// the machine gets into a file. What the Debian package has beside its program is in the folder files. A module of its own keeps what only packaging
// needs out of the product.
package main
