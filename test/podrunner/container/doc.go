// Package container turns a container's definition into what a process is given: arguments, environment, identity,
// limits. Pure functions of the definition, the pod, the image and what they refer to; what is missing is an error for
// the user, in words that the kubelet uses where it has some.
package container
