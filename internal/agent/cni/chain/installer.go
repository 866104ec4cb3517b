package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"

	"github.com/pilotmesh/pilot/internal/run/filewatch"
)

// repeat is how often the folders are looked at in any case: the watch can miss a change.
const repeat = 30 * time.Second

// saved is appended to the name of a configuration of one plugin that a list replaces. Runtimes do not read files with such names.
const saved = ".pilot-cni-saved"

// errNoNetwork means that the plugin of the cluster's network has not been installed yet.
var errNoNetwork = errors.New("there is no configuration of a network yet: install the network plugin of the cluster; this one is put behind it")

// Installer keeps the plugin on a host.
type Installer struct {
	// Program is the file of the plugin.
	Program string
	// BinDir and ConfDir are the folders of the host for plugins and configurations.
	BinDir, ConfDir string
	// ConfName is the configuration that the plugin is put into; empty for the first one by name, which runtimes use.
	ConfName string
	// Chained puts the plugin into a configuration. Otherwise it gets one of its own, which runtimes use for pods that ask for it.
	Chained bool
	Entry   Entry
	Log     *slog.Logger

	err atomic.Pointer[error]
}

// Err returns why the plugin is not in place, or nil.
func (i *Installer) Err() error {
	if err := i.err.Load(); err != nil {
		return *err
	}
	return errors.New("the plugin has not been installed yet")
}

// Run keeps the plugin in place until ctx ends.
func (i *Installer) Run(ctx context.Context) error {
	w := filewatch.Watcher{Log: i.Log}
	defer w.Close()
	again := time.NewTicker(repeat)
	defer again.Stop()
	for {
		w.Follow([]string{filepath.Join(i.ConfDir, "any"), i.binary()}) // it watches the folders
		err := i.Install()
		if last := i.err.Load(); err != nil && (last == nil || *last == nil || (*last).Error() != err.Error()) {
			i.Log.Warn("the plugin is not in place", "error", err)
		}
		i.err.Store(&err)
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case <-w.Failed(): //nolint:errcheck // whatever failed, the folders are looked at
		case <-w.Changed():
			w.Settle(ctx)
		}
	}
}

func (i *Installer) binary() string { return filepath.Join(i.BinDir, i.Entry.Type) }

// Install puts the plugin in place, if it is not: first its program, then its configuration.
func (i *Installer) Install() error {
	if err := i.copyProgram(); err != nil {
		return err
	}
	if !i.Chained {
		text, err := standalone(i.Entry)
		if err != nil {
			return err
		}
		return i.put(i.own(), text)
	}
	name, err := i.network()
	if err != nil {
		return err
	}
	path := filepath.Join(i.ConfDir, name)
	file, err := filewatch.Read(path)
	if err != nil {
		return fmt.Errorf("the configuration of the network: %w", err)
	}
	text, err := insert(file, i.Entry)
	if err != nil {
		return fmt.Errorf("the configuration of the network %s: %w", path, err)
	}
	if filepath.Ext(name) == ".conflist" {
		return i.put(path, text)
	}
	// Runtimes read lists by their names only, and prefer x.conf to x.conflist.
	if err := i.put(strings.TrimSuffix(path, filepath.Ext(path))+".conflist", text); err != nil {
		return err
	}
	return os.Rename(path, path+saved)
}

func (i *Installer) own() string { return filepath.Join(i.ConfDir, "YYY-"+i.Entry.Type+".conf") }

// network returns the name of the configuration that the plugin is put into.
func (i *Installer) network() (string, error) {
	if i.ConfName != "" {
		if _, err := os.Stat(filepath.Join(i.ConfDir, i.ConfName)); errors.Is(err, fs.ErrNotExist) {
			// A configuration of one plugin has become a list.
			list := strings.TrimSuffix(i.ConfName, filepath.Ext(i.ConfName)) + ".conflist"
			if _, err := os.Stat(filepath.Join(i.ConfDir, list)); err != nil {
				return "", fmt.Errorf("%w (%s)", errNoNetwork, i.ConfName)
			}
			return list, nil
		}
		return i.ConfName, nil
	}
	names, err := i.configurations()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		file, err := filewatch.Read(filepath.Join(i.ConfDir, name))
		if err != nil {
			continue // it has just been removed
		}
		if n, list, err := read(file); err == nil && n.text("type") != i.Entry.Type && (len(list) == 0) == (filepath.Ext(name) != ".conflist") {
			return name, nil
		}
	}
	return "", errNoNetwork
}

// configurations returns the names of files that runtimes read, in their order.
func (i *Installer) configurations() (names []string, err error) {
	entries, err := os.ReadDir(i.ConfDir)
	if err != nil {
		return nil, fmt.Errorf("the folder of configurations of networks: %w; it is the folder of the host that its container runtime reads", err)
	}
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// put writes a file of the configuration, unless it has the content.
func (i *Installer) put(path string, text []byte) error {
	if is, err := os.ReadFile(path); err == nil && bytes.Equal(is, text) {
		return nil
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := renameio.WriteFile(path, text, mode, renameio.WithStaticPermissions(mode)); err != nil {
		return fmt.Errorf("writing the configuration of the network: %w", err)
	}
	i.Log.Info("the plugin is in the configuration of the network", "file", path)
	return nil
}

// copyProgram copies the program, unless the host has it.
func (i *Installer) copyProgram() error {
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return fmt.Errorf("the program of the plugin: %w", err)
	}
	if is, err := os.ReadFile(i.binary()); err == nil && bytes.Equal(is, program) {
		return nil
	}
	if err := renameio.WriteFile(i.binary(), program, 0o755, renameio.WithStaticPermissions(0o755)); err != nil {
		return fmt.Errorf("installing the program of the plugin: %w; it must be possible to write to the folder of plugins of the host", err)
	}
	i.Log.Info("the program of the plugin is installed", "file", i.binary())
	return nil
}

// Remove removes the plugin: first from all configurations, then its program.
func (i *Installer) Remove() error {
	names, err := i.configurations()
	failed := []error{err}
	for _, name := range names {
		path := filepath.Join(i.ConfDir, name)
		switch file, err := filewatch.Read(path); {
		case err != nil || path == i.own() || !has(file, i.Entry.Type):
		default:
			failed = append(failed, i.takeOut(path, file))
		}
	}
	for _, path := range []string{i.own(), i.binary()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// takeOut removes the plugin from a list, or brings back the configuration that the list has replaced.
func (i *Installer) takeOut(path string, file []byte) error {
	for _, ext := range []string{".conf", ".json"} {
		old := strings.TrimSuffix(path, ".conflist") + ext
		if err := os.Rename(old+saved, old); err == nil {
			return os.Remove(path)
		}
	}
	text, err := remove(file, i.Entry.Type)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return i.put(path, text)
}
