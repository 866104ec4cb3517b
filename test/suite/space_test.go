package main

import (
	"path/filepath"
	"testing"
)

// TestFreeSpace: a folder that does not exist yet has the space of the one in which it will be made.
func TestFreeSpace(t *testing.T) {
	is, err := freeSpace(t.TempDir())
	if err != nil || is == 0 {
		t.Fatalf("%d bytes, %v", is, err)
	}
	if below, err := freeSpace(filepath.Join(t.TempDir(), "not", "there")); err != nil || below == 0 {
		t.Errorf("below: %d bytes, %v", below, err)
	}
	if _, err := freeSpace("a\x00b"); err == nil {
		t.Error("a path that cannot exist has space")
	}
}
