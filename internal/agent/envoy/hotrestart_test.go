package envoy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHotRestartArgs(t *testing.T) {
	for _, c := range []struct {
		h    HotRestart
		want string
	}{
		{HotRestart{BaseIDFile: "/base-id", ParentShutdown: time.Minute}, "--restart-epoch 0 --parent-shutdown-time-s 60 --use-dynamic-base-id --base-id-path /base-id"},
		{HotRestart{Epoch: 3, BaseID: "7", BaseIDFile: "/base-id", ParentShutdown: 2 * time.Second}, "--restart-epoch 3 --parent-shutdown-time-s 2 --base-id 7"},
	} {
		if got := c.h.args(); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("got %q, want %s", got, c.want)
		}
	}
}

func TestCheckHotRestart(t *testing.T) {
	dir := t.TempDir()
	if err := checkHotRestart(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	err := checkHotRestart(filepath.Join(dir, "no"))
	if err == nil || !strings.Contains(err.Error(), "mount a tmpfs that this user can write to at "+dir) || !strings.Contains(err.Error(), "or omit --hotRestart") {
		t.Errorf("%v does not tell what to do", err)
	}
}

func TestReadBaseID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "base-id")
	if _, err := ReadBaseID(path); err == nil {
		t.Error("there is no file")
	}
	for text, want := range map[string]string{"123": "123", "4294967295\n": "4294967295", "": "", "../x": "", "-1": ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := ReadBaseID(path); id != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, id, err)
		}
	}
}

// TestForgetStart: only the flag is cleared, and not in a file of an unknown layout.
func TestForgetStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	known := bytes.Repeat([]byte{0xaa}, memorySize)
	binary.NativeEndian.PutUint64(known, memorySize)
	binary.NativeEndian.PutUint64(known[versionAt:], memoryVersion)
	later := slices.Clone(known)
	later[versionAt]++
	for _, c := range []struct {
		text    []byte
		changed bool
	}{{known, true}, {later, false}, {known[:memorySize-1], false}, {append(slices.Clone(known), 0), false}, {nil, false}} {
		if err := os.WriteFile(path, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		err := forgetStart(path)
		want := slices.Clone(c.text)
		if c.changed {
			clear(want[flagsAt:])
		}
		if got, readErr := os.ReadFile(path); readErr != nil || !bytes.Equal(got, want) || (err == nil) != c.changed {
			t.Errorf("%d bytes: %v, %v; got %v", len(c.text), err, readErr, got)
		}
	}
}

func TestReadyOfEpoch(t *testing.T) {
	const up = "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 2\nlistener_manager.workers_started: 1\nserver.state: 0\n"
	a, _ := admin(t, up+"server.hot_restart_epoch: 1\n")
	a.Expect(1)
	if err := a.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	a.Expect(2)
	if err := a.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "the Envoy of epoch 2 does not answer yet, but the Envoy of epoch 1 does") {
		t.Error(err)
	}
}

// TestRemoveMemory: memory that any process has mapped stays.
func TestRemoveMemory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "envoy_shared_memory_70")
	maps := filepath.Join(dir, "proc", "42", "maps")
	if err := os.MkdirAll(filepath.Dir(maps), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		maps string
		stay bool
	}{
		{"7f00-7f01 rw-s 00000000 00:1a 5    " + path + "\n", true},
		{"7f00-7f01 rw-s 00000000 00:1a 5    " + path + "0\n", false},
		{"7f00-7f01 rw-s 00000000 00:1a 5    " + path + " (deleted)\n", false},
		{"", false},
	} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.WriteFile(maps, []byte(c.maps), 0o600)); err != nil {
			t.Fatal(err)
		}
		err := removeMemory(path, filepath.Join(dir, "proc"))
		if _, gone := os.Stat(path); (gone == nil) != c.stay || (err != nil) != c.stay || c.stay && !strings.Contains(err.Error(), "process 42 uses it") {
			t.Errorf("with maps %q: %v, %v", c.maps, gone, err)
		}
	}
	if err := removeMemory(path, filepath.Join(dir, "proc")); err != nil {
		t.Errorf("memory that is gone: %v", err)
	}
}
