// Package container turns a container's definition into the inputs of a process: arguments, environment, identity, limits. Pure functions of the
// definition, the pod, the image and the objects these refer to; a missing object is an error for the user, in the kubelet's words where it has some.
package container
