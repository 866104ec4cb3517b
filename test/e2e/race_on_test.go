//go:build race

package e2e

// raced: what the tests start is built as they are, with the race detector.
const raced = true
