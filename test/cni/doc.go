// Package cni holds the tests of the CNI plugin in network namespaces: its program is run as a container runtime runs it, and a host agent answers.
package cni
