package object

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Unread counts objects of kinds that are not read, by kind.
type Unread map[string]int

// Total returns the number of all objects.
func (u Unread) Total() (n int) {
	for _, of := range u {
		n += of
	}
	return n
}

// String lists the kinds with their numbers, such as "ClusterRole (2), Deployment (1)".
func (u Unread) String() string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(u)) {
		list = append(list, fmt.Sprintf("%s (%d)", kind, u[kind]))
	}
	return strings.Join(list, ", ")
}
