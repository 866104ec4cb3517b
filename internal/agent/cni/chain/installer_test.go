package chain

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// folders are the folders of a host.
type folders struct {
	*testing.T
	i *Installer
}

func newFolders(t *testing.T, conf map[string]string) *folders {
	t.Helper()
	dir := t.TempDir()
	f := &folders{t, &Installer{
		Program: filepath.Join(dir, "program"), BinDir: filepath.Join(dir, "bin"), ConfDir: filepath.Join(dir, "net.d"), Chained: true, Entry: entry, Log: slog.New(slog.DiscardHandler),
	}}
	for _, d := range []string{f.i.BinDir, f.i.ConfDir} {
		f.must(os.Mkdir(d, 0o755))
	}
	f.must(os.WriteFile(f.i.Program, []byte("program 1"), 0o600))
	for name, text := range conf {
		f.write(name, text)
	}
	return f
}

func (f *folders) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *folders) write(name, text string) {
	f.Helper()
	f.must(os.WriteFile(filepath.Join(f.i.ConfDir, name), []byte(text), 0o600))
}

// list returns the files of the folder of configurations. A + marks a file with the plugin.
func (f *folders) list() string {
	f.Helper()
	entries, err := os.ReadDir(f.i.ConfDir)
	f.must(err)
	var names []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(f.i.ConfDir, e.Name()))
		f.must(err)
		name := e.Name()
		if strings.Contains(string(text), entry.Type) {
			name += "+"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

const (
	ptp  = `{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "ptp"}]}`
	solo = `{"name": "n", "cniVersion": "1.0.0", "type": "bridge"}`
)

// TestInstall: which file gets the plugin, and the files after its removal.
func TestInstall(t *testing.T) {
	for _, c := range []struct {
		name             string
		before           map[string]string
		conf             string
		alone            bool
		after, removed   string
		again, withAgain string // a file that the network's own plugin writes again, and what follows
	}{
		{"the first list", map[string]string{"10-a.conflist": ptp, "20-b.conflist": ptp}, "", false, "10-a.conflist+ 20-b.conflist", "10-a.conflist 20-b.conflist", "10-a.conflist", "10-a.conflist+ 20-b.conflist"},
		{"a list by name", map[string]string{"10-a.conflist": ptp, "20-b.conflist": ptp}, "20-b.conflist", false, "10-a.conflist 20-b.conflist+", "10-a.conflist 20-b.conflist", "", ""},
		{"files that runtimes skip", map[string]string{"00-x.txt": ptp, "05-broken.conflist": "{", "10-a.conflist": ptp}, "", false, "00-x.txt 05-broken.conflist 10-a.conflist+", "00-x.txt 05-broken.conflist 10-a.conflist", "", ""},
		{"one plugin", map[string]string{"10-a.conf": solo}, "", false, "10-a.conf.pilot-cni-saved 10-a.conflist+", "10-a.conf", "10-a.conf", "10-a.conf.pilot-cni-saved 10-a.conflist+"},
		{"one plugin by name", map[string]string{"10-a.conf": solo}, "10-a.conf", false, "10-a.conf.pilot-cni-saved 10-a.conflist+", "10-a.conf", "", ""},
		{"not chained", map[string]string{"10-a.conflist": ptp}, "", true, "10-a.conflist YYY-pilot-cni.conf+", "10-a.conflist", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolders(t, c.before)
			f.i.ConfName, f.i.Chained = c.conf, !c.alone
			for range 2 {
				f.must(f.i.Install())
				if is := f.list(); is != c.after {
					t.Errorf("installed: %s, want %s", is, c.after)
				}
			}
			if c.again != "" {
				f.write(c.again, c.before[c.again])
				f.must(f.i.Install())
				if is := f.list(); is != c.withAgain {
					t.Errorf("written again by another: %s, want %s", is, c.withAgain)
				}
			}
			for range 2 {
				f.must(f.i.Remove())
				if is := f.list(); is != c.removed {
					t.Errorf("removed: %s, want %s", is, c.removed)
				}
			}
			if _, err := os.Stat(f.i.binary()); !os.IsNotExist(err) {
				t.Errorf("the program is still there: %v", err)
			}
		})
	}
}

// TestWaits: without a network, the plugin waits for one, and a new version of the program replaces the former one.
func TestWaits(t *testing.T) {
	f := newFolders(t, nil)
	if err := f.i.Install(); !errors.Is(err, errNoNetwork) {
		t.Errorf("without a network: %v", err)
	}
	f.must(os.WriteFile(f.i.Program, []byte("program 2"), 0o600))
	f.write("10-a.conflist", ptp)
	f.must(f.i.Install())
	if text, err := os.ReadFile(f.i.binary()); err != nil || string(text) != "program 2" {
		t.Errorf("the program is %q, %v", text, err)
	}
	if info, err := os.Stat(f.i.binary()); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the mode of the program: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(f.i.ConfDir, "10-a.conflist")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the configuration: %v, %v; it was 0600", info, err)
	}
}

// TestRun: a file that another program replaces gets the plugin again.
func TestRun(t *testing.T) {
	f := newFolders(t, map[string]string{"10-a.conflist": ptp})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- f.i.Run(ctx) }()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	until := func(want string) {
		t.Helper()
		for f.list() != want {
			select {
			case <-again.C:
			case <-ctx.Done():
				t.Fatalf("the files are %s, want %s: %v", f.list(), want, f.i.Err())
			}
		}
	}
	until("10-a.conflist+")
	f.write("05-new.conflist", ptp)
	until("05-new.conflist+ 10-a.conflist+")
	f.write("05-new.conflist", ptp)
	until("05-new.conflist+ 10-a.conflist+")
	cancel()
	f.must(<-ended)
}
