package syntax

import "strings"

// Operators returns the known operators of formats: plain operators have no argument, the others need one.
func Operators() (plain, argument []string) {
	return strings.Fields(plainOperators), strings.Fields(argumentOperators)
}

// LaterOperators are the operators that the oldest supported Envoy does not know, by the minor of the first that does.
func LaterOperators() map[uint32][]string {
	return map[uint32][]string{38: strings.Fields(since38), 39: strings.Fields(since39), 40: strings.Fields(since40)}
}
