// Command packaging makes the Debian package of the node agent for virtual machines: the program, its systemd unit, the user that it runs as,
// and, if one is given, an Envoy.
//
// What the package has beside that is in the folder files. A module of its own keeps what only packaging needs out of the product.
package main
